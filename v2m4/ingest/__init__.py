"""What ingest is made of: cutting the object out, masks over time, the crop, the choice of keyframes, and a verdict."""
