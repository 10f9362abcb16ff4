"""Numbers that say, keyframe by keyframe, whether the registered motion can be used."""

from __future__ import annotations

from typing import Any

import numpy as np

from v2m4.topology.graph import Graph, State
from v2m4.topology.sequence import Registration
from v2m4.topology.surface import Normalisation, edges_of, face_vectors, unit, volume
from v2m4.topology.temporal import differences

Row = dict[str, Any]


def flipped_faces(graph: Graph, state: State, vertices: np.ndarray) -> np.ndarray:
    """(F,) bool: faces that point against the way their nodes have turned them."""
    faces = graph.surface.faces
    rest, now = unit(face_vectors(graph.surface.vertices, faces)), unit(face_vectors(vertices, faces))
    centroids = graph.vertex_count + graph.face_points.first
    nodes, weights = graph.point_nodes[centroids], graph.point_weights[centroids]
    turned = np.einsum("fk,fkij,fj->fi", weights, state.rotation[nodes], rest)
    return (turned * now).sum(1) < 0


def edge_stretch(rest: np.ndarray, vertices: np.ndarray, faces: np.ndarray) -> tuple[float, float]:
    """Mean and 95th percentile of |length / rest length - 1| over edges, weighted by rest length."""
    a, b = edges_of(faces).T
    before = np.linalg.norm(rest[a] - rest[b], axis=1)
    after = np.linalg.norm(vertices[a] - vertices[b], axis=1)
    used = before > 1e-9
    stretch, weight = np.abs(after[used] / before[used] - 1), before[used]
    if not len(stretch):
        return 0.0, 0.0
    order = np.argsort(stretch, kind="stable")
    at = np.searchsorted(np.cumsum(weight[order]), 0.95 * weight.sum())
    return float(stretch @ weight / weight.sum()), float(stretch[order][min(at, len(order) - 1)])


def jitter(vertices: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """(K,) mean length of the second difference at each keyframe, working units; 0 at the two ends."""
    out = np.zeros(len(vertices))
    if len(vertices) > 2:
        bend = np.einsum("st,tvc->svc", differences(times_s, 2), vertices)
        out[1:-1] = np.linalg.norm(bend, axis=2).mean(1)
    return out


def report(
    result: Registration, units: Normalisation, times_s: np.ndarray, keyframes: list[int], reasons: list[str]
) -> list[Row]:
    """One row per keyframe, without the silhouette score. Lengths are shares of the object's size, volume in m^3."""
    graph = result.graph
    shake = jitter(result.vertices, times_s)
    rows: list[Row] = []
    for k, index in enumerate(keyframes):
        vertices = result.vertices[k]
        mean, p95 = edge_stretch(graph.surface.vertices, vertices, graph.surface.faces)
        fit = result.fits[k]
        rows.append(
            {
                "index": int(index),
                "time_s": float(times_s[k]),
                "trusted": bool(result.trusted[k]),
                "reason": reasons[k],
                "flips": int(flipped_faces(graph, result.states[k], vertices).sum()),
                "stretch_mean": round(mean, 5),
                "stretch_p95": round(p95, 5),
                "volume": round(volume(vertices, graph.surface.faces) * units.size**3, 9),
                "jitter": round(float(shake[k]), 6),
                "residual": round(fit.residual, 6),
                "explained": round(fit.explained, 4),
                "covered": round(fit.covered, 4),
            }
        )
    return rows


def summary(rows: list[Row]) -> Row:
    """The clip in a few numbers: means over keyframes, and the worst ones."""

    def mean(key: str) -> float:
        return round(float(np.mean([r[key] for r in rows])), 5)

    out: Row = {key: mean(key) for key in ("stretch_mean", "stretch_p95", "jitter", "residual")}
    out["keyframes"] = len(rows)
    out["flips"] = int(sum(r["flips"] for r in rows))
    out["not_trusted"] = [r["index"] for r in rows if not r["trusted"]]
    bulk = [r["volume"] for r in rows]
    out["volume_range"] = [round(min(bulk), 9), round(max(bulk), 9)]
    if all("iou" in r for r in rows):
        out["iou"] = mean("iou")
        out["worst"] = min(rows, key=lambda r: r["iou"])["index"]
    return out
