"""Kernels: attributes of the corners at the pixels, perspective-correct, their slopes, and the gradient of that.

Seen from a pixel, in homogeneous pixel coordinates, the weight of a corner is the cross product of the other two: no
division by a corner's depth, so that corners behind the camera do no harm. Along a row the weights are linear in x.
"""

from __future__ import annotations

import numpy as np

from v2m4.render._jit import kernel


@kernel
def _corners(pixel, faces, f, y):
    """The corners of face ``f`` seen from row ``y``: x, y, z of each, in homogeneous pixel coordinates."""
    i, j, k = np.uint64(faces[f, 0]), np.uint64(faces[f, 1]), np.uint64(faces[f, 2])
    return (
        pixel[i, 0], pixel[i, 1] - y * pixel[i, 2], pixel[i, 2],
        pixel[j, 0], pixel[j, 1] - y * pixel[j, 2], pixel[j, 2],
        pixel[k, 0], pixel[k, 1] - y * pixel[k, 2], pixel[k, 2],
    )  # fmt: skip


@kernel
def _along(ax, ay, az, bx, by, bz, cx, cy, cz):
    """Unnormalised weights along the row, at + x * by: three pairs."""
    return (
        bx * cy - by * cx, by * cz - bz * cy, cx * ay - cy * ax, cy * az - cz * ay, ax * by - ay * bx, ay * bz - az * by
    )  # fmt: skip


@kernel
def weights(pixel, faces, face, out, top, bottom):
    """Barycentric weights into rows of ``out`` (H,W,3) of one view; 0 where ``face`` (H,W) is -1."""
    for row in range(top, bottom):
        last = np.int32(-1)
        pa = qa = pb = qb = pc = qc = 0.0
        for column in range(face.shape[1]):
            f = face[row, column]
            if f < 0:
                out[row, column] = 0.0
                continue
            if f != last:
                last = f
                pa, qa, pb, qb, pc, qc = _along(*_corners(pixel, faces, f, row + 0.5))
            x = column + 0.5
            a, b, c = pa + x * qa, pb + x * qb, pc + x * qc
            scale = 1.0 / (a + b + c)
            out[row, column, 0], out[row, column, 1], out[row, column, 2] = a * scale, b * scale, c * scale


@kernel
def forward(pixel, faces, attributes, corners, face, image, top, bottom):
    """Fill rows of ``image`` (H,W,C) of one view with the attributes seen; 0 where there is no face.

    ``pixel`` (V,3) homogeneous pixel coordinates of the vertices, ``faces`` (F,3) into them, ``attributes`` (U,C),
    ``corners`` (F,3) into those, ``face`` (H,W).
    """
    channels = attributes.shape[1]
    for row in range(top, bottom):
        last = np.int32(-1)
        i = j = k = np.uint64(0)
        pa = qa = pb = qb = pc = qc = 0.0
        for column in range(face.shape[1]):
            f = face[row, column]
            if f < 0:
                for c in range(channels):
                    image[row, column, c] = 0.0
                continue
            if f != last:
                last = f
                i, j, k = np.uint64(corners[f, 0]), np.uint64(corners[f, 1]), np.uint64(corners[f, 2])
                pa, qa, pb, qb, pc, qc = _along(*_corners(pixel, faces, f, row + 0.5))
            x = column + 0.5
            wa, wb, wc = pa + x * qa, pb + x * qb, pc + x * qc
            scale = 1.0 / (wa + wb + wc)
            wa, wb, wc = wa * scale, wb * scale, wc * scale
            for c in range(channels):
                image[row, column, c] = wa * attributes[i, c] + wb * attributes[j, c] + wc * attributes[k, c]


@kernel
def slopes(pixel, faces, attributes, corners, face, out, top, bottom):
    """Fill rows of ``out`` (H,W,C,2): how the attributes change a pixel to the right and a pixel down."""
    for row in range(top, bottom):
        y = row + 0.5
        for column in range(face.shape[1]):
            f = face[row, column]
            if f < 0:
                out[row, column] = 0.0
                continue
            i, j, k = np.uint64(corners[f, 0]), np.uint64(corners[f, 1]), np.uint64(corners[f, 2])
            ax, ay, az, bx, by, bz, cx, cy, cz = _corners(pixel, faces, f, y)
            pa, ra, pb, rb, pc, rc = _along(ax, ay, az, bx, by, bz, cx, cy, cz)
            x = column + 0.5
            ax, bx, cx = ax - x * az, bx - x * bz, cx - x * cz
            da, db, dc = bz * cx - bx * cz, cz * ax - cx * az, az * bx - ax * bz
            scale = 1.0 / (pa + x * ra + pb + x * rb + pc + x * rc)
            wa, wb, wc = (pa + x * ra) * scale, (pb + x * rb) * scale, (pc + x * rc) * scale
            right, down = (ra + rb + rc) * scale, (da + db + dc) * scale
            for c in range(attributes.shape[1]):
                a, b, d = float(attributes[i, c]), float(attributes[j, c]), float(attributes[k, c])
                value = wa * a + wb * b + wc * d
                out[row, column, c, 0] = (ra * a + rb * b + rc * d) * scale - value * right
                out[row, column, c, 1] = (da * a + db * b + dc * d) * scale - value * down


@kernel
def backward(pixel, faces, attributes, corners, face, grad, top, bottom, grad_pixel, grad_attributes):
    """Add the gradient of rows top..bottom-1 of one view, as ``forward``.

    ``grad`` (H,W,C) -> ``grad_pixel`` (V,3), with respect to ``pixel``, and ``grad_attributes`` (U,C). Neighbours in a
    row that show the same face are summed up first: writing to the vertices is what takes time.
    """
    channels, width = attributes.shape[1], face.shape[1]
    for row in range(top, bottom):
        y = row + 0.5
        column = 0
        while column < width:
            f = face[row, column]
            if f < 0:
                column += 1
                continue
            i, j, k = np.uint64(corners[f, 0]), np.uint64(corners[f, 1]), np.uint64(corners[f, 2])
            ax, ay, az, bx, by, bz, cx, cy, cz = _corners(pixel, faces, f, y)
            pa, qa, pb, qb, pc, qc = _along(ax, ay, az, bx, by, bz, cx, cy, cz)
            sa = sb = sc = ma = mb = mc = 0.0  # sums of the weights' gradients, and of those times x
            while column < width and face[row, column] == f:
                x = column + 0.5
                wa, wb, wc = pa + x * qa, pb + x * qb, pc + x * qc
                scale = 1.0 / (wa + wb + wc)
                wa, wb, wc = wa * scale, wb * scale, wc * scale
                ga = gb = gc = 0.0
                for c in range(channels):
                    g = float(grad[row, column, c])
                    ga += g * attributes[i, c]
                    gb += g * attributes[j, c]
                    gc += g * attributes[k, c]
                    grad_attributes[i, c] += wa * g
                    grad_attributes[j, c] += wb * g
                    grad_attributes[k, c] += wc * g
                mean = ga * wa + gb * wb + gc * wc
                ga, gb, gc = (ga - mean) * scale, (gb - mean) * scale, (gc - mean) * scale
                sa, sb, sc = sa + ga, sb + gb, sc + gc
                ma, mb, mc = ma + x * ga, mb + x * gb, mc + x * gc
                column += 1
            # d(weight)/d(corner) is a cross product again; x changed along the run, y did not.
            _add(grad_pixel, faces[f, 0], y, by, cy, sc, sb, mc, mb, sb * cx - mb * cz - sc * bx + mc * bz)
            _add(grad_pixel, faces[f, 1], y, cy, ay, sa, sc, ma, mc, sc * ax - mc * az - sa * cx + ma * cz)
            _add(grad_pixel, faces[f, 2], y, ay, by, sb, sa, mb, ma, sa * bx - ma * bz - sb * ax + mb * az)


@kernel
def _add(grad_pixel, vertex, y, py, qy, sq, sp, mq, mp, grad_y):
    i = np.uint64(vertex)
    grad_pixel[i, 0] += sq * py - sp * qy
    grad_pixel[i, 1] += grad_y
    grad_pixel[i, 2] -= mq * py - mp * qy + y * grad_y
