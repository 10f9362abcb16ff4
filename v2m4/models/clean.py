"""Put a mesh in order before anything is computed on it: weld, drop what is broken, reduce. Nothing is moved.

Generators and exporters split vertices at UV seams and leave zero-area and doubled triangles behind; distances along
the surface and cotangent weights suffer from both. Every change is counted and told, none is silent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.errors import InputError
from v2m4.types import Mesh

MIN_FACES = 4  #: the fewest that can enclose a body
#: A triangle whose height is below this share of its longest side has no usable area (float32 noise is about 1e-7).
FLAT = 1e-6


@dataclass(frozen=True)
class Cleaned:
    """A mesh in order and what was done to it, one sentence each."""

    mesh: Mesh
    notes: tuple[str, ...]


def clean(mesh: Mesh, max_faces: int | None = None) -> Cleaned:
    """Weld, drop broken, doubled and unused items, turn an inside-out body, decimate to ``max_faces``.

    InputError when what is left cannot be a body (fewer than four triangles).
    """
    notes: list[str] = []
    mesh = _weld(mesh, notes)
    mesh = _drop_faces(mesh, notes)
    mesh = _drop_unused(mesh, notes)
    if len(mesh.faces) < MIN_FACES:
        raise InputError(
            f"the mesh has {counted(len(mesh.faces), 'usable triangle')}; a body needs at least {MIN_FACES}",
            "export the whole body as triangles" + (f" ({'; '.join(notes)})" if notes else ""),
        )
    mesh = _turn_outward(mesh, notes)
    if max_faces is not None and len(mesh.faces) > max_faces:
        before = len(mesh.faces)
        mesh = reduce(mesh, max_faces)
        notes.append(f"reduced from {before} to {len(mesh.faces)} faces")
    return Cleaned(mesh, tuple(notes))


def counted(number: int, one: str, many: str = "") -> str:
    """'1 face', '2 faces'."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _weld(mesh: Mesh, notes: list[str]) -> Mesh:
    """Join vertices at exactly the same place; their colours are averaged, first places keep their order."""
    place = mesh.vertices + np.float32(0)  # -0 and 0 are one place
    _, first, inverse = np.unique(place, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    if len(first) == len(place):
        return mesh
    order = np.argsort(first)
    rank = np.empty(len(first), int)
    rank[order] = np.arange(len(first))
    group = rank[inverse]
    colors = None
    if mesh.colors is not None:
        share = np.bincount(group)
        colors = np.stack([np.rint(np.bincount(group, mesh.colors[:, k]) / share) for k in range(3)], 1).astype(
            np.uint8
        )
    notes.append(f"welded {len(place)} vertices into {len(first)} places")
    return Mesh(mesh.vertices[first[order]], group[mesh.faces], colors)


def _drop_faces(mesh: Mesh, notes: list[str]) -> Mesh:
    faces, flips = _flip_flat(mesh.vertices, mesh.faces)
    if flips:
        notes.append(f"turned the long edge of {counted(flips, 'face')} without area")
    bad = _flat(mesh.vertices, faces)
    if bad.any():
        notes.append(f"dropped {counted(int(bad.sum()), 'face')} without area")
        faces = faces[~bad]
    _, first = np.unique(np.sort(faces, 1), axis=0, return_index=True)
    if len(first) < len(faces):
        notes.append(f"dropped {counted(len(faces) - len(first), 'duplicate face')}")
        faces = faces[np.sort(first)]
    return Mesh(mesh.vertices, faces, mesh.colors) if flips or len(faces) < len(mesh.faces) else mesh


def _flip_flat(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, int]:
    """(faces, number of flips): where three different vertices lie on a line, the longest edge is turned.

    Dropping such a face would open a crack along it; with the edge turned, both triangles beside it have an area.
    """
    flat = np.flatnonzero(_flat(vertices, faces))
    faces, flips = faces.copy(), 0
    if not len(flat):
        return faces, flips
    # Only edges of faces that touch a flat one are needed: a mesh has few of them.
    near = np.flatnonzero(np.isin(faces, faces[flat]).any(1))
    edges = {(int(faces[f, k]), int(faces[f, (k + 1) % 3])): (int(f), k) for f in near for k in range(3)}
    for f in flat:
        corners = [int(i) for i in faces[f]]
        lengths = [float(np.linalg.norm(vertices[corners[k]] - vertices[corners[(k + 1) % 3]])) for k in range(3)]
        k = int(np.argmax(lengths))
        b, a, m = corners[k], corners[(k + 1) % 3], corners[(k + 2) % 3]
        g, j = edges.get((a, b), (-1, 0))
        if g < 0 or len({a, b, m}) < 3:
            continue
        d = int(faces[g, (j + 2) % 3])
        new = np.array([(m, b, d), (m, d, a)])
        if (m, d) in edges or (d, m) in edges or _flat(vertices, new).any():
            continue
        faces[f], faces[g] = new
        flips += 1
        for name, face in ((f, new[0]), (g, new[1])):
            edges.update({(int(face[i]), int(face[(i + 1) % 3])): (int(name), i) for i in range(3)})
        del edges[(a, b)], edges[(b, a)]
    return faces, flips


def _flat(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F,) bool: a corner named twice, or a height that is nothing beside the longest side."""
    a, b, c = (vertices[faces[:, k]].astype(float) for k in range(3))
    twice_area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    longest = np.maximum.reduce([((x - y) ** 2).sum(1) for x, y in ((a, b), (b, c), (c, a))])
    return twice_area <= FLAT * longest


def _drop_unused(mesh: Mesh, notes: list[str]) -> Mesh:
    used = np.zeros(len(mesh.vertices), bool)
    used[mesh.faces] = True
    if used.all():
        return mesh
    notes.append(f"dropped {counted(int((~used).sum()), 'vertex', 'vertices')} no face uses")
    number = np.cumsum(used) - 1
    return Mesh(mesh.vertices[used], number[mesh.faces], None if mesh.colors is None else mesh.colors[used])


def _turn_outward(mesh: Mesh, notes: list[str]) -> Mesh:
    """A closed mesh whose faces look inward (a mirrored export), turned; an open one has no certain outside."""
    if not is_closed(mesh.faces) or volume(mesh.moved(mesh.vertices - mesh.vertices.mean(0))) >= 0:
        return mesh
    notes.append(f"turned {counted(len(mesh.faces), 'face')}: the mesh was inside out")
    return Mesh(mesh.vertices, mesh.faces[:, ::-1], mesh.colors)


def reduce(mesh: Mesh, max_faces: int) -> Mesh:
    """At most ``max_faces`` faces by quadric decimation; colours come from the nearest points of the old surface."""
    target = max_faces
    for _ in range(4):  # the decimater may stop a little above its target
        vertices, faces = decimate(mesh.vertices, mesh.faces, target)
        if len(faces) <= max_faces:
            break
        target -= len(faces) - max_faces
    colors = None if mesh.colors is None else _colors_at(mesh, vertices)
    return _drop_unused(Mesh(vertices, faces, colors), [])


def decimate(vertices: np.ndarray, faces: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Quadric edge collapse to about ``target`` faces; returned as it is when it has no more. Closed stays closed."""
    if len(faces) <= target:
        return vertices, faces
    import fast_simplification

    out = fast_simplification.simplify(
        np.ascontiguousarray(vertices, np.float32), np.ascontiguousarray(faces, np.int32), target_count=max(target, 4)
    )
    fewer, triangles = np.asarray(out[0]), np.asarray(out[1])
    if is_closed(faces) and not is_closed(triangles):
        return part_edges(fewer, triangles)
    return fewer, triangles


def part_edges(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Take apart edges where more than two faces meet, if as many run along them as against them.

    The collapse of a narrow notch can press two sheets onto one edge. Each pair of faces with the body between them
    gets a middle point of its own, a little inside the pair.
    """
    vertices, faces = np.asarray(vertices, float), _drop_pillows(np.asarray(faces))
    at: dict[tuple[int, int], list[tuple[int, int]]] = {}
    corners = np.stack([faces, np.roll(faces, -1, 1)], 2)
    ordered = np.sort(corners.reshape(-1, 2), 1)
    _, inverse, count = np.unique(ordered, axis=0, return_inverse=True, return_counts=True)
    for half in np.flatnonzero(count[inverse.reshape(-1)] > 2):
        at.setdefault((int(ordered[half, 0]), int(ordered[half, 1])), []).append(divmod(int(half), 3))
    points = list(vertices)
    pieces = {f: [tuple(int(i) for i in faces[f])] for halves in at.values() for f, _ in halves}
    for (a, b), halves in at.items():
        for pair in _pairs(vertices, faces, a, b, halves):
            middle = (points[a] + points[b]) / 2
            inward = np.mean([vertices[faces[f, (k + 2) % 3]] for f, k in pair], axis=0) - middle
            points.append(middle + 0.05 * inward)
            for f, _ in pair:
                _bisect(pieces[f], {a, b}, len(points) - 1)
    whole = np.delete(faces, list(pieces), axis=0)
    faces = np.concatenate([whole, *(np.array(piece) for piece in pieces.values())])
    used, compact = np.unique(faces, return_inverse=True)
    return np.array(points)[used], compact.reshape(-1, 3)


def _drop_pillows(faces: np.ndarray) -> np.ndarray:
    """Without pairs of faces that lie back to back on the same three vertices."""
    _, inverse, count = np.unique(np.sort(faces, 1), axis=0, return_inverse=True, return_counts=True)
    return faces[count[inverse.reshape(-1)] % 2 == 1]


def _pairs(
    vertices: np.ndarray, faces: np.ndarray, a: int, b: int, halves: list[tuple[int, int]]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pair the faces round edge (a, b) that have the body between them; nothing when the numbers do not match."""
    axis = vertices[b] - vertices[a]
    axis = axis / max(float(np.linalg.norm(axis)), 1e-30)
    helper = np.eye(3)[int(np.abs(axis).argmin())]
    u = np.cross(axis, helper)
    u = u / np.linalg.norm(u)
    v = np.cross(axis, u)
    entries = []
    for f, k in halves:
        arm = vertices[faces[f, (k + 2) % 3]] - vertices[a]
        entries.append((float(np.arctan2(arm @ v, arm @ u)), int(faces[f, k]) == a, (f, k)))
    entries.sort(key=lambda e: (e[0], not e[1]))
    along = [e for e in entries if e[1]]
    against = [e for e in entries if not e[1]]
    if len(along) != len(against):
        return []
    # The body lies clockwise of a face that runs along the edge, so its partner is the nearest one on that side.
    pairs = []
    for angle, _, half in along:
        partner = min(against, key=lambda e: (angle - e[0]) % (2 * np.pi))
        against.remove(partner)
        pairs.append((half, partner[2]))
    return pairs


def _bisect(pieces: list[tuple[int, ...]], edge: set[int], middle: int) -> None:
    """Split the one triangle among the ``pieces`` of a face that has this edge at the edge's middle."""
    i, k = next((i, k) for i, t in enumerate(pieces) for k in range(3) if {t[k], t[(k + 1) % 3]} == edge)
    p, q, r = pieces[i][k], pieces[i][(k + 1) % 3], pieces[i][(k + 2) % 3]
    pieces[i] = (p, middle, r)
    pieces.append((middle, q, r))


def _colors_at(mesh: Mesh, points: np.ndarray, candidates: int = 12) -> np.ndarray:
    """Colours (N,3) uint8 of ``mesh`` at its surface points nearest to ``points`` (N,3)."""
    from scipy.spatial import cKDTree
    from trimesh.triangles import closest_point, points_to_barycentric

    assert mesh.colors is not None
    triangles = mesh.vertices[mesh.faces].astype(float)
    candidates = min(candidates, len(triangles))
    near = cKDTree(triangles.mean(1)).query(points, candidates)[1].reshape(len(points), candidates)
    queries = np.repeat(points.astype(float), candidates, axis=0)
    spots = closest_point(triangles[near.ravel()], queries)
    best = ((spots - queries) ** 2).sum(1).reshape(near.shape).argmin(1)
    rows = np.arange(len(points))
    face = near[rows, best]
    weights = points_to_barycentric(triangles[face], spots.reshape(*near.shape, 3)[rows, best])
    weights = np.clip(weights, 0, 1)
    weights /= weights.sum(1, keepdims=True)
    mixed = (mesh.colors[mesh.faces[face]] * weights[..., None]).sum(1)
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def is_closed(faces: np.ndarray) -> bool:
    """Every edge has exactly two faces, which run along it in opposite directions."""
    if len(faces) == 0:
        return False
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    size = int(edges.max()) + 1
    forward, backward = edges[:, 0] * size + edges[:, 1], edges[:, 1] * size + edges[:, 0]
    return len(np.unique(forward)) == len(forward) and bool(np.array_equal(np.sort(forward), np.sort(backward)))


def volume(mesh: Mesh) -> float:
    """Signed volume enclosed by a closed mesh; positive when the faces look outward."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(float) for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)
