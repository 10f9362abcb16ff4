"""From an animated mesh and its texture to one checked glTF file and a report."""
