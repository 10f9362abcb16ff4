"""Where was the camera for every keyframe: search, refinement, the clip as a whole, and one world for all meshes.

``view`` cuts the object out of a frame as a virtual camera sees it that looks straight at it; ``subject`` draws a mesh
in that view; ``search`` samples directions and rolls; ``refine`` is the gradient step; ``track`` chooses among the
hypotheses of all keyframes together; ``distance`` tells the object's distance from the meshes' own scale; ``repose``
puts all meshes into one world.
"""
