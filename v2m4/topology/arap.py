"""As-rigid-as-possible energy of the graph and the Gauss-Newton equations, as plain loops for numba.

Energy of a state relative to a reference (positions g, rotations that start at the identity), over node edges (j, k)::

    arap * sum_edges w * ( |R_j (g_k - g_j) - (p_k - p_j)|^2 + |R_k (g_j - g_k) - (p_j - p_k)|^2 )
    turn * sum_edges w * (3 - trace(R_j R_k^T))

Both ends of an edge count and R is a proper rotation by construction (it is only ever multiplied by rotations), so a
rigid motion costs exactly nothing. 3 - trace = |R_j - R_k|^2 / 2 is the squared angle for small angles.

Unknowns of a step, six per node: a rotation vector u and a translation t, R <- exp(u) R, p <- p + t.

Block matrices are accumulated one-sided: a buffer U (blocks,6,6) with U[block(j,k)] such that H = U + U^T.
"""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True)
def add_rigidity(
    U: np.ndarray,
    gradient: np.ndarray,
    blocks: np.ndarray,
    edges: np.ndarray,
    weights: np.ndarray,
    reference: np.ndarray,
    rotation: np.ndarray,
    position: np.ndarray,
    arap: float,
    turn: float,
) -> float:
    """Add the equations of the energy above to U and to ``gradient`` (N,6) (= J^T r); return the energy.

    ``blocks`` (N,N) int32: block number of a node pair; ``reference`` (N,3); ``rotation`` (N,3,3) relative to it.
    """
    energy = 0.0
    d = np.empty(3)
    r = np.empty(3)
    M = np.empty((3, 3))
    for e in range(edges.shape[0]):
        for side in range(2):
            j = edges[e, side]
            k = edges[e, 1 - side]
            w = arap * weights[e]
            for a in range(3):
                d[a] = 0.0
                for b in range(3):
                    d[a] += rotation[j, a, b] * (reference[k, b] - reference[j, b])
                r[a] = d[a] - (position[k, a] - position[j, a])
                energy += w * r[a] * r[a]
            # residual = d - (p_k - p_j); d turns with u_j: dr = u_j x d + t_j - t_k
            gradient[j, 0] += w * (d[1] * r[2] - d[2] * r[1])
            gradient[j, 1] += w * (d[2] * r[0] - d[0] * r[2])
            gradient[j, 2] += w * (d[0] * r[1] - d[1] * r[0])
            jj, kk, jk = blocks[j, j], blocks[k, k], blocks[j, k]
            square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
            for a in range(3):
                gradient[j, 3 + a] += w * r[a]
                gradient[k, 3 + a] -= w * r[a]
                U[jj, 3 + a, 3 + a] += 0.5 * w
                U[kk, 3 + a, 3 + a] += 0.5 * w
                U[jk, 3 + a, 3 + a] -= w
                for b in range(3):
                    U[jj, a, b] -= 0.5 * w * d[a] * d[b]
                U[jj, a, a] += 0.5 * w * square
            for a in range(3):  # cross(d, unit vector) couples u_j with t_j (+) and t_k (-)
                b, c = (a + 1) % 3, (a + 2) % 3
                U[jj, b, 3 + c] -= w * d[a]
                U[jj, c, 3 + b] += w * d[a]
                U[jk, b, 3 + c] += w * d[a]
                U[jk, c, 3 + b] -= w * d[a]
        j, k = edges[e, 0], edges[e, 1]
        w = turn * weights[e]
        trace = 0.0
        for a in range(3):
            for b in range(3):
                M[a, b] = 0.0
                for c in range(3):
                    M[a, b] += rotation[j, a, c] * rotation[k, b, c]
            trace += M[a, a]
        energy += w * (3.0 - trace)
        jj, kk, jk = blocks[j, j], blocks[k, k], blocks[j, k]
        for a in range(3):
            b, c = (a + 1) % 3, (a + 2) % 3
            slope = 0.5 * w * (M[c, b] - M[b, c])
            gradient[j, a] += slope
            gradient[k, a] -= slope
            U[jj, a, a] += 0.5 * w
            U[kk, a, a] += 0.5 * w
            for b2 in range(3):
                U[jk, a, b2] += 0.5 * w * M[b2, a]
            U[jk, a, a] -= 0.5 * w * trace
    return energy


@nb.njit(cache=True)
def add_points(
    U: np.ndarray,
    gradient: np.ndarray,
    blocks: np.ndarray,
    metric: np.ndarray,
    pull: np.ndarray,
    point_nodes: np.ndarray,
    point_weights: np.ndarray,
    turned: np.ndarray,
) -> None:
    """Add data terms, one quadratic per surface point: 1/2-free form  dx^T A dx + 2 h^T dx.

    ``metric`` (M,3,3) holds A = sum of w c c^T and ``pull`` (M,3) h = sum of w r c over all rows (direction c,
    residual r, weight w) of a point, so that a point costs the same however many correspondences it has.
    The point moves by dx = sum_k q_k (u_k x b_k + t_k) with weights q and turned offsets b.
    """
    K = point_nodes.shape[1]
    AB = np.empty((3, 6))
    Bh = np.empty(6)
    for m in range(point_nodes.shape[0]):
        if metric[m, 0, 0] + metric[m, 1, 1] + metric[m, 2, 2] <= 0.0:
            continue
        h0, h1, h2 = pull[m, 0], pull[m, 1], pull[m, 2]
        for l in range(K):  # noqa: E741
            q = point_weights[m, l]
            b0, b1, b2 = turned[m, l, 0], turned[m, l, 1], turned[m, l, 2]
            node = point_nodes[m, l]
            Bh[0] = b1 * h2 - b2 * h1
            Bh[1] = b2 * h0 - b0 * h2
            Bh[2] = b0 * h1 - b1 * h0
            Bh[3], Bh[4], Bh[5] = h0, h1, h2
            for a in range(6):
                gradient[node, a] += q * Bh[a]
            for a in range(3):  # A times the 3x6 matrix of node l
                x, y, z = metric[m, a, 0], metric[m, a, 1], metric[m, a, 2]
                AB[a, 0] = q * (z * b1 - y * b2)
                AB[a, 1] = q * (x * b2 - z * b0)
                AB[a, 2] = q * (y * b0 - x * b1)
                AB[a, 3], AB[a, 4], AB[a, 5] = q * x, q * y, q * z
            for k in range(l + 1):
                p = point_weights[m, k]
                if k == l:
                    p *= 0.5
                c0, c1, c2 = turned[m, k, 0], turned[m, k, 1], turned[m, k, 2]
                block = blocks[point_nodes[m, k], node]
                for a in range(6):
                    x, y, z = p * AB[0, a], p * AB[1, a], p * AB[2, a]
                    U[block, 0, a] += c1 * z - c2 * y
                    U[block, 1, a] += c2 * x - c0 * z
                    U[block, 2, a] += c0 * y - c1 * x
                    U[block, 3, a] += x
                    U[block, 4, a] += y
                    U[block, 5, a] += z
