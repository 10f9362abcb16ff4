"""Embedded deformation graph (Sumner et al. 2007): a few hundred nodes that carry the surface.

Nodes are spread by farthest-point sampling along the surface, and each surface point follows the nodes that are near
*along the surface*, so that two legs that stand close do not move together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, dijkstra, reverse_cuthill_mckee
from scipy.spatial import cKDTree

from v2m4.topology.surface import Surface, edges_of, face_areas, point_normals

NODE_NEIGHBOURS = 7
POINT_NEIGHBOURS = 6
#: A face with more than 1 / this of the surface gets more than one point.
SURFACE_POINTS = 3000


@dataclass(frozen=True)
class State:
    """Where the nodes are in one keyframe: ``rotation`` (N,3,3) proper rotations, ``position`` (N,3)."""

    rotation: np.ndarray
    position: np.ndarray


@dataclass(frozen=True)
class FacePoints:
    """Points on faces: ``face`` (P,) in rising order, ``weights`` (P,3) of its corners, ``first`` (F,) the first point
    of each face."""

    face: np.ndarray
    weights: np.ndarray
    first: np.ndarray

    def on(self, values: np.ndarray, faces: np.ndarray) -> np.ndarray:
        """Vertex values (V,C) at the vertices, then at these points (V+P,C)."""
        return np.concatenate([values, (values[faces[self.face]] * self.weights[..., None]).sum(1)])


@dataclass(frozen=True)
class Graph:
    """The template of one clip.

    "Points" (M of them) are the V vertices followed by points on the faces, at least one on each and more on large
    ones, so that a mesh with few large faces is felt everywhere. Lengths are in working units.
    """

    surface: Surface
    nodes: np.ndarray  #: (N,3) rest positions, in an order that keeps the equations' bandwidth small
    edges: np.ndarray  #: (E,2) node pairs
    edge_weights: np.ndarray  #: (E,) 1 / mean number of edges of a node
    face_points: FacePoints  #: the M-V points on faces
    points: np.ndarray  #: (M,3) rest positions
    colors: np.ndarray  #: (M,3) minus their mean, zeros when the mesh has none
    areas: np.ndarray  #: (M,) share of the surface, times N: the whole surface weighs as much as the nodes together
    point_nodes: np.ndarray  #: (M,k) int64
    point_weights: np.ndarray  #: (M,k) rows sum to 1
    offsets: np.ndarray  #: (M,k,3) point minus node at rest
    spacing: float  #: typical distance between neighbouring nodes
    bridges: int  #: edges added between separate parts

    @property
    def vertex_count(self) -> int:
        return len(self.surface.vertices)

    def rest(self) -> State:
        """The state that leaves every point where it is."""
        return State(np.tile(np.eye(3), (len(self.nodes), 1, 1)), self.nodes.copy())


def build_graph(surface: Surface, nodes: int = 250) -> Graph:
    """The deformation graph of the anchor's surface (at most one node per vertex)."""
    vertices, faces = surface.vertices, surface.faces
    roads, bridges = _roads(vertices, edges_of(faces))
    chosen, distance = _spread(roads, vertices, faces, nodes)
    count = len(chosen)
    spots = face_points(vertices, faces)
    point_nodes, point_weights = _skin(distance, faces, spots, min(POINT_NEIGHBOURS, count))
    edges = _node_edges(distance[chosen])
    order = _narrow_order(count, point_nodes, edges)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    chosen, point_nodes, edges = chosen[order], place[point_nodes], np.sort(place[edges], axis=1).reshape(-1, 2)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    points = spots.on(vertices, faces)
    degree = max(2 * len(edges) / count, 1.0)
    return Graph(
        surface=surface,
        nodes=vertices[chosen].copy(),
        edges=edges,
        edge_weights=np.full(len(edges), 1.0 / degree),
        face_points=spots,
        points=points,
        colors=_point_colors(surface, spots),
        areas=_point_areas(vertices, faces, spots) * count,
        point_nodes=point_nodes,
        point_weights=point_weights,
        offsets=points[:, None] - vertices[chosen][point_nodes],
        spacing=_spacing(vertices[chosen], edges),
        bridges=bridges,
    )


def deform(graph: Graph, state: State) -> tuple[np.ndarray, np.ndarray]:
    """Points (M,3) in ``state``, and the turned offsets (M,k,3) that the derivatives need."""
    turned = np.matmul(state.rotation[graph.point_nodes], graph.offsets[..., None])[..., 0]
    moved = ((turned + state.position[graph.point_nodes]) * graph.point_weights[..., None]).sum(1)
    return moved, turned


def deform_vertices(graph: Graph, state: State) -> np.ndarray:
    """Vertices (V,3) in ``state``."""
    return deform(graph, state)[0][: graph.vertex_count]


def _roads(vertices: np.ndarray, edges: np.ndarray) -> tuple[sp.csr_matrix, int]:
    """Edge-length graph of the vertices with separate parts bridged at their nearest points, and the bridge count."""
    count = len(vertices)
    length = np.maximum(np.linalg.norm(vertices[edges[:, 0]] - vertices[edges[:, 1]], axis=1), 1e-9)
    roads = sp.coo_matrix((length, (edges[:, 0], edges[:, 1])), (count, count)).tocsr()
    _, label = connected_components(roads, directed=False)
    added: list[np.ndarray] = []
    main = np.bincount(label).argmax()
    while (label != main).any():
        inside, outside = np.nonzero(label == main)[0], np.nonzero(label != main)[0]
        gap, near = cKDTree(vertices[inside]).query(vertices[outside])
        reach = 1.5 * gap.min() + 1e-4  # several parts at once, so that many crumbs do not take many rounds
        for part in np.unique(label[outside[gap <= reach]]):
            members = np.nonzero(label[outside] == part)[0]
            best = members[np.argsort(gap[members], kind="stable")[:4]]
            added.append(np.stack([outside[best], inside[near[best]], np.maximum(gap[best], 1e-4)], 1))
            label[label == part] = main
    if added:
        bridge = np.concatenate(added)
        pairs = bridge[:, :2].astype(np.int64)
        roads = roads + sp.coo_matrix((bridge[:, 2], (pairs[:, 0], pairs[:, 1])), (count, count)).tocsr()
    return (roads + roads.T).tocsr(), sum(len(b) for b in added)


def _spread(roads: sp.csr_matrix, vertices: np.ndarray, faces: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Farthest-point sampling along the surface: vertex of each node (N,) and all distances (V,N)."""
    centre = vertices[np.unique(faces)].mean(0)
    current = int(np.argmax(((vertices - centre) ** 2).sum(1)))
    nearest = np.full(len(vertices), np.inf)
    chosen, columns = [], []
    for _ in range(min(nodes, len(vertices))):
        column = dijkstra(roads, directed=False, indices=current)
        chosen.append(current)
        columns.append(column)
        nearest = np.minimum(nearest, column)
        current = int(nearest.argmax())
    return np.array(chosen), np.stack(columns, 1)


def _skin(distance: np.ndarray, faces: np.ndarray, spots: FacePoints, neighbours: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest nodes of every point and their weights (1 - d / d_next)^2."""
    vertices, count = distance.shape
    total = vertices + len(spots.face)
    ids = np.empty((total, neighbours), np.int64)
    weights = np.empty((total, neighbours))
    step = 4096  # rows at a time: the full table would be the largest array of the stage
    for low in range(0, total, step):
        high = min(low + step, total)
        part = distance[low : min(high, vertices)]
        on_faces = slice(max(low - vertices, 0), max(high - vertices, 0))
        corners, share = faces[spots.face[on_faces]], spots.weights[on_faces]
        part = np.concatenate([part, np.einsum("pk,pkn->pn", share, distance[corners])])
        order = np.argsort(part, axis=1, kind="stable")[:, : neighbours + 1]
        near = np.take_along_axis(part, order, 1)
        last = near[:, neighbours:] if count > neighbours else near[:, -1:] * 1.5
        weight = np.maximum(1 - near[:, :neighbours] / np.maximum(last, 1e-12), 1e-4) ** 2
        ids[low:high] = order[:, :neighbours]
        weights[low:high] = weight / weight.sum(1, keepdims=True)
    return ids, weights


def _node_edges(between: np.ndarray) -> np.ndarray:
    """Each node with its nearest nodes, from the distances (N,N) between nodes."""
    near = np.argsort(between, axis=1, kind="stable")[:, : NODE_NEIGHBOURS + 1]
    pairs = np.stack([np.repeat(np.arange(len(between)), near.shape[1]), near.ravel()], 1)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0).reshape(-1, 2)


def coupling(count: int, point_nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(N,N) bool: which nodes share an equation."""
    out = np.eye(count, dtype=bool)
    for a in range(point_nodes.shape[1]):
        for b in range(point_nodes.shape[1]):
            out[point_nodes[:, a], point_nodes[:, b]] = True
    out[edges[:, 0], edges[:, 1]] = True
    return out | out.T


def _narrow_order(count: int, point_nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Reverse Cuthill-McKee: the order of nodes that makes a banded Cholesky cheap."""
    pattern = sp.csr_matrix(coupling(count, point_nodes, edges))
    return np.asarray(reverse_cuthill_mckee(pattern, symmetric_mode=True), np.int64)


def _spacing(nodes: np.ndarray, edges: np.ndarray) -> float:
    if not len(edges):
        return 1.0
    return max(float(np.median(np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1))), 1e-3)


def _point_colors(surface: Surface, spots: FacePoints) -> np.ndarray:
    if surface.colors is None:
        return np.zeros((len(surface.vertices) + len(spots.face), 3))
    colors = spots.on(surface.colors, surface.faces)
    return colors - colors.mean(0)


def _point_areas(vertices: np.ndarray, faces: np.ndarray, spots: FacePoints) -> np.ndarray:
    """Half of the area goes to the vertices, half to the points on faces; sums to 1."""
    areas = face_areas(vertices, faces)
    corner = np.bincount(faces.T.ravel(), np.tile(areas / 3, 3), len(vertices))
    share = areas / np.bincount(spots.face, minlength=len(faces))
    both = np.concatenate([corner, share[spots.face]])
    total = both.sum()
    return both / total if total > 0 else np.full(len(both), 1 / len(both))


def face_points(vertices: np.ndarray, faces: np.ndarray) -> FacePoints:
    """One point at each face's centroid, or several spread evenly where a face is larger than its share."""
    areas = face_areas(vertices, faces)
    total = areas.sum()
    wanted = np.round(areas / total * SURFACE_POINTS) if total > 0 else np.zeros(len(faces))
    count = np.maximum(wanted, 1).astype(np.int64)
    first = np.cumsum(count) - count
    face = np.repeat(np.arange(len(faces)), count)
    turn = np.arange(len(face)) - first[face]
    # The R2 sequence (Roberts 2018), folded into the triangle, starting at the centroid.
    a = (1 / 3 + turn * 0.7548776662466927) % 1
    b = (1 / 3 + turn * 0.5698402909980532) % 1
    over = a + b > 1
    a, b = np.where(over, 1 - a, a), np.where(over, 1 - b, b)
    return FacePoints(face, np.stack([1 - a - b, a, b], 1), first)


def moved_normals(graph: Graph, moved: np.ndarray) -> np.ndarray:
    """Unit normals (M,3) of the moved points (M,3)."""
    count = graph.vertex_count
    both = point_normals(moved[:count], graph.surface.faces)
    return np.concatenate([both[:count], both[count:][graph.face_points.face]])
