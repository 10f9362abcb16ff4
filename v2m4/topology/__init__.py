"""Registration: from one mesh per keyframe to one topology that moves.

``surface`` units, normals, samples · ``graph`` the deformation graph · ``arap`` energies and equations · ``solve`` one
keyframe's step · ``align`` coarse alignment · ``register`` dense alignment · ``temporal`` all keyframes together ·
``sequence`` the whole walk · ``anchor`` which topology · ``trust`` which keyframes · ``pictures`` what the video
shows · ``quality`` what came out.
"""
