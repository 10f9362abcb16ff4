"""v2m4: from one video of a moving object to a game-ready animated mesh.

Importing this package is cheap: torch is loaded only inside the functions that need it.
"""

import os
import sys

# OpenMP's spin-waiting makes torch tens of times slower when another process shares the core.
# It is read once, when torch is first imported, so it has to be set before anything imports torch.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# BLAS threads spin as well, and our matrices are too small to gain from them: on a busy machine a second thread made a
# Cholesky factorisation 20 to 100 times slower. One thread also gives the same bytes on machines of any size. It is
# read when numpy and scipy are first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _keep_memory() -> None:
    """Have glibc keep freed blocks of up to 256 MB for the next use instead of handing them back to the system.

    Pictures are such blocks, and getting them anew (a page fault every 4 KB) takes longer than drawing them: forward
    and backward of 32 views at 512², squared error in torch included, took twice the time. Left alone where the user
    has chosen.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    m_trim_threshold, m_mmap_threshold = -1, -3  # malloc.h
    mallopt(m_mmap_threshold, 256 << 20)
    mallopt(m_trim_threshold, 512 << 20)


_keep_memory()

__version__ = "0.1.0"
