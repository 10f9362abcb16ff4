"""Seconds a keyframe and peak memory of the registration, on a bending rod of about 4,000 faces.

    python benchmarks/topology.py [--keyframes 16]

Set OMP_NUM_THREADS to choose the threads of the linear algebra.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
import trimesh

from v2m4.topology.sequence import register_sequence
from v2m4.topology.surface import Surface


def rod(k: int) -> Surface:
    """A rod of about 4,000 faces, bent a little more each keyframe, tessellated anew."""
    body = trimesh.creation.cylinder(0.15, 1.0, sections=20 + k % 3).subdivide_to_size(0.07)
    x, y, z = np.asarray(body.vertices).T
    bend = 0.1 * k + 0.05
    angle = bend * (z + 0.5)
    vertices = np.stack([np.sin(angle) / bend - np.sin(angle) * x, (1 - np.cos(angle)) / bend + x, 0.7 * y], 1)
    return Surface(vertices, np.asarray(body.faces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keyframes", type=int, default=16)
    count = parser.parse_args().keyframes
    surfaces = [rod(k) for k in range(count)]
    wall, processor = time.perf_counter(), time.process_time()
    result = register_sequence(surfaces, np.arange(count) / 12, 0, np.ones(count, bool), list(range(count)))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    worst = max(fit.residual for fit in result.fits)
    sys.stdout.write(
        f"{count} keyframes of {len(surfaces[0].faces)} faces: {wall:.1f} s, {processor:.1f} s of processor, "
        f"{processor / count:.2f} s a keyframe, peak {peak:.0f} MB, worst residual {worst:.4f}\n"
    )


if __name__ == "__main__":
    main()
