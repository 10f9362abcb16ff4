"""Vertex attributes at the pixels, perspective-correct, and the gradient of that."""

from __future__ import annotations

from v2m4.render._jit import kernel
from v2m4.render.zbuffer import weights


@kernel
def forward(pixel, faces, attributes, face, image, top, bottom):
    """Fill rows of ``image`` (H,W,C+1) of one view: attributes, then 1 where there is a face; 0 elsewhere.

    ``pixel`` (V,3) homogeneous pixel coordinates of the vertices, ``attributes`` (V,C), ``face`` (H,W).
    """
    channels = attributes.shape[1]
    for row in range(top, bottom):
        for column in range(face.shape[1]):
            f = face[row, column]
            if f < 0:
                for c in range(channels + 1):
                    image[row, column, c] = 0.0
                continue
            image[row, column, channels] = 1.0
            if channels == 0:
                continue
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            wa, wb, wc = weights(pixel, i, j, k, column + 0.5, row + 0.5)
            scale = 1.0 / (wa + wb + wc)
            for c in range(channels):
                value = wa * attributes[i, c] + wb * attributes[j, c] + wc * attributes[k, c]
                image[row, column, c] = value * scale


@kernel
def backward(pixel, faces, attributes, face, grad, top, bottom, grad_pixel, grad_attributes):
    """Add the gradient of rows top..bottom-1 of one view.

    ``grad`` (H,W,C+1) -> ``grad_pixel`` (V,3), with respect to ``pixel``, and ``grad_attributes`` (V,C).
    """
    channels = attributes.shape[1]
    for row in range(top, bottom):
        for column in range(face.shape[1]):
            f = face[row, column]
            if f < 0:
                continue
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            x, y = column + 0.5, row + 0.5
            ax, ay = pixel[i, 0] - x * pixel[i, 2], pixel[i, 1] - y * pixel[i, 2]
            bx, by = pixel[j, 0] - x * pixel[j, 2], pixel[j, 1] - y * pixel[j, 2]
            cx, cy = pixel[k, 0] - x * pixel[k, 2], pixel[k, 1] - y * pixel[k, 2]
            wa, wb, wc = bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx
            scale = 1.0 / (wa + wb + wc)
            wa, wb, wc = wa * scale, wb * scale, wc * scale
            ga, gb, gc = 0.0, 0.0, 0.0
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
            _add(grad_pixel, i, gc * by - gb * cy, gb * cx - gc * bx, x, y)
            _add(grad_pixel, j, ga * cy - gc * ay, gc * ax - ga * cx, x, y)
            _add(grad_pixel, k, gb * ay - ga * by, ga * bx - gb * ax, x, y)


@kernel
def _add(grad_pixel, i, gx, gy, x, y):
    grad_pixel[i, 0] += gx
    grad_pixel[i, 1] += gy
    grad_pixel[i, 2] -= gx * x + gy * y
