"""The one place where vertices are split at UV seams: everything before it works on the welded mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.errors import InputError
from v2m4.types import Texture


@dataclass(frozen=True)
class SeamSplit:
    """A mesh whose vertices carry their own UV.

    ``welded`` (S,) int32 names the welded vertex of each split vertex (rising), ``uv`` (S,2) float32 its place in the
    map, ``faces`` (F,3) int32 the split vertices of each face, in the order of the welded faces. Anything stored per
    welded vertex is carried over as ``values[welded]``, so seams stay closed and smooth.
    """

    welded: np.ndarray
    uv: np.ndarray
    faces: np.ndarray


def split_seams(faces: np.ndarray, texture: Texture) -> SeamSplit:
    """One split vertex for each pair of a welded vertex and a UV point that some face uses.

    ``faces`` (F,3) index welded vertices; welded vertices without a face are left out. InputError when the UV map was
    made for another face list.
    """
    if len(faces) != len(texture.uv_faces):
        raise InputError(f"the mesh has {len(faces)} faces but its UV map has {len(texture.uv_faces)}")
    if len(faces) == 0:
        raise InputError("the mesh has no faces")
    places, place_of = np.unique(texture.uv, axis=0, return_inverse=True)
    corners = np.asarray(faces, np.int64).reshape(-1) * len(places) + place_of.reshape(-1)[texture.uv_faces.reshape(-1)]
    pairs, index = np.unique(corners, return_inverse=True)
    return SeamSplit(
        welded=(pairs // len(places)).astype(np.int32),
        uv=np.ascontiguousarray(places[pairs % len(places)], np.float32),
        faces=index.reshape(-1, 3).astype(np.int32),
    )
