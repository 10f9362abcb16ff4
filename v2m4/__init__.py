"""v2m4: from one video of a moving object to a game-ready animated mesh.

Importing this package is cheap: torch is loaded only inside the functions that need it.
"""

import os

# OpenMP's spin-waiting makes torch tens of times slower when another process shares the core.
# It is read once, when torch is first imported, so it has to be set before anything imports torch.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# BLAS threads spin as well, and our matrices are too small to gain from them: on a busy machine a second thread made a
# Cholesky factorisation 20 to 100 times slower. One thread also gives the same bytes on machines of any size. It is
# read when numpy and scipy are first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
