"""Dense registration of the template to one keyframe: optimal transport first, then two-way ICP.

Transport gives every template point the mean position of the target it exchanges mass with. Because both surfaces
carry the same mass everywhere, a fast leg is drawn to the leg and not to the nearer belly. The entropic blur shrinks
such means towards the middle, so the same blur of the template onto itself is subtracted (the debiased Sinkhorn
divergence, Feydy et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from v2m4.topology.graph import Graph, State, deform, moved_normals
from v2m4.topology.solve import Pattern, Rigidity, Terms, clean, relax
from v2m4.topology.surface import Samples, Surface, sample

TARGET_SAMPLES = 8000
#: Share of a plain point-to-point row beside each point-to-plane row, which alone lets sheets slide freely.
POINT_SHARE = 0.1
CLOSE = 0.04
FAR = 0.1

#: (steps, ARAP, turn, transport blur) and (steps, ARAP, turn, robust scale, gate), coarse to fine. Working units.
TRANSPORT_SCHEDULE = ((5, 4.0, 2.0, 0.15), (4, 2.0, 1.0, 0.10), (4, 1.0, 0.5, 0.07), (4, 0.5, 0.25, 0.05),
                      (4, 0.3, 0.15, 0.035))  # fmt: skip
ICP_SCHEDULE = ((5, 0.5, 0.25, 0.04, 0.12), (5, 0.4, 0.2, 0.03, 0.08))


@dataclass(frozen=True)
class Features:
    """How much normals and colours (both in feature space) count beside positions when partners are chosen."""

    normal: float
    color: float

    def of(self, points: np.ndarray, normals: np.ndarray, colors: np.ndarray) -> np.ndarray:
        """(n,9), or (n,6) without colour."""
        parts = [points, self.normal * normals] + ([self.color * colors] if self.color > 0 else [])
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Matching:
    """Everything that decides who is whose partner."""

    transport_features: Features = Features(0.1, 0.15)
    icp_features: Features = Features(0.06, 0.08)
    transport_points: int = 1200
    icp_points: int = 4000
    icp_back_points: int = 3000
    least_cosine: float = 0.3
    transport_rounds: int = 15


class Target:
    """A keyframe as something to register to: fixed samples and their search tree."""

    def __init__(self, surface: Surface, seed: int, features: Features) -> None:
        self.samples: Samples = sample(surface, TARGET_SAMPLES, seed)
        self.features = features
        s = self.samples
        self.tree = cKDTree(features.of(s.points, s.normals, s.colors), balanced_tree=False)


@dataclass(frozen=True)
class Fit:
    """How well a state explains a target: share of each surface with a partner within CLOSE that agrees, and the mean
    distance (cut off at FAR) both ways, in working units."""

    explained: float
    covered: float
    residual: float


def add_icp(
    graph: Graph, moved: np.ndarray, target: Target, terms: Terms, robust: float, gate: float, matching: Matching
) -> Fit:
    """Two-way point-to-plane rows with Geman-McClure weights; partners beyond ``gate`` or facing away are dropped.

    ``moved`` (M,3) points; normals come from the moved surface. Returns the fit at ``moved``.
    """
    normals = moved_normals(graph, moved)
    # An even choice among the points: more rows than this add time, not knowledge.
    chosen = np.unique(np.linspace(0, len(moved) - 1, min(matching.icp_points, len(moved))).astype(np.int64))
    points, normals, areas = moved[chosen], normals[chosen], graph.areas[chosen]
    mine = target.features.of(points, normals, graph.colors[chosen])
    s = target.samples
    _, partner = target.tree.query(mine)
    weights = areas * (len(graph.nodes) / areas.sum())
    partners = s.points[partner], s.normals[partner]
    share_out, gap_out = _icp_rows(terms, chosen, points, normals, weights, partners, robust, gate, matching)
    back = slice(0, matching.icp_back_points)
    there = target.features.of(s.points[back], s.normals[back], s.colors[back])
    _, ids = cKDTree(mine, balanced_tree=False).query(there)
    weights = np.full(len(ids), len(graph.nodes) / len(ids))
    partners = s.points[back], s.normals[back]
    share_back, gap_back = _icp_rows(
        terms, chosen[ids], points[ids], normals[ids], weights, partners, robust, gate, matching
    )
    return Fit(share_out, share_back, gap_out + gap_back)


def _icp_rows(
    terms: Terms,
    ids: np.ndarray,
    points: np.ndarray,
    normals: np.ndarray,
    weights: np.ndarray,
    partners: tuple[np.ndarray, np.ndarray],
    robust: float,
    gate: float,
    matching: Matching,
) -> tuple[float, float]:
    partner_points, partner_normals = partners
    gap = points - partner_points
    square = (gap**2).sum(1)
    cosine = (normals * partner_normals).sum(1)
    good = (square < gate**2) & (cosine > matching.least_cosine)
    weight = weights * good * (robust**2 / (robust**2 + square)) ** 2
    keep = weight > 0
    ids, gap, weight = ids[keep], gap[keep], weight[keep]
    plane = partner_normals[keep]
    terms.add_plane(ids, plane, (gap * plane).sum(1), weight)
    terms.add_position(ids, gap, weight * POINT_SHARE)
    total = weights.sum()
    close = float(weights @ (good & (square < CLOSE**2)) / total)
    return close, float(weights @ np.minimum(np.sqrt(square), FAR) / total)


def add_transport(
    graph: Graph,
    moved: np.ndarray,
    target: Target,
    terms: Terms,
    blur: float,
    chosen: tuple[np.ndarray, np.ndarray],
    matching: Matching,
) -> None:
    """Point-to-point rows from the debiased transport between template points and target samples.

    ``chosen``: indices of the template points and of the target samples that take part.
    """
    mine, theirs = chosen
    features = matching.transport_features
    normals = moved_normals(graph, moved)[mine]
    points = moved[mine]
    s = target.samples
    here = features.of(points, normals, graph.colors[mine]).astype(np.float32)
    there = features.of(s.points[theirs], s.normals[theirs], s.colors[theirs]).astype(np.float32)
    mass = graph.areas[mine].astype(np.float32)
    mass /= mass.sum()
    epsilon = np.float32(blur**2)
    drawn, sent = _transport(here, there, mass, s.points[theirs].astype(np.float32), epsilon, matching.transport_rounds)
    own = _self_transport(here, mass, points.astype(np.float32), epsilon)
    weight = np.minimum(sent, mass).astype(np.float64) * len(graph.nodes)
    weight[~(sent > 1e-12 * mass)] = 0.0
    gap = (own - drawn).astype(np.float64)
    keep = (weight > 0) & np.isfinite(gap).all(1)
    terms.add_position(mine[keep], gap[keep], weight[keep])


def _kernel(a: np.ndarray, b: np.ndarray, epsilon: np.float32) -> np.ndarray:
    """exp(-|a - b|^2 / epsilon), (n,m) float32."""
    square = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * (a @ b.T)
    np.maximum(square, 0, out=square)
    square *= -1 / epsilon
    return np.exp(square, out=square)


def _transport(
    here: np.ndarray, there: np.ndarray, mass: np.ndarray, points: np.ndarray, epsilon: np.float32, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sinkhorn: where each template point's mass goes on average (n,3), and how much of it arrives (n,)."""
    K = _kernel(here, there, epsilon)
    even = np.float32(1 / len(there))
    left, right = np.ones(len(here), np.float32), np.ones(len(there), np.float32)
    for _ in range(rounds):
        left = np.minimum(mass / np.maximum(K @ right, 1e-30), 1e18).astype(np.float32)
        right = np.minimum(even / np.maximum(left @ K, 1e-30), 1e18).astype(np.float32)
    arrived = K @ np.concatenate([right[:, None], right[:, None] * points], 1)
    sent = left * arrived[:, 0]
    return arrived[:, 1:] / np.maximum(arrived[:, :1], 1e-30), sent


def _self_transport(here: np.ndarray, mass: np.ndarray, points: np.ndarray, epsilon: np.float32) -> np.ndarray:
    """The same blur of the template onto itself: where a point would be drawn if it already fitted (n,3)."""
    K = _kernel(here, here, epsilon)
    scale = np.sqrt(mass)
    for _ in range(6):
        scale = np.sqrt(scale * mass / np.maximum(K @ scale, 1e-30))
    arrived = K @ np.concatenate([scale[:, None], scale[:, None] * points], 1)
    return arrived[:, 1:] / np.maximum(arrived[:, :1], 1e-30)


def register(
    graph: Graph, pattern: Pattern, start: State, target: Target, neighbour: State | None, seed: int,
    matching: Matching | None = None,
) -> State:  # fmt: skip
    """The state of the template at ``target``, from ``start``; rigidity is mostly relative to ``neighbour``."""
    matching = matching or Matching()
    rng = np.random.default_rng(seed)
    state = start
    with_area = np.nonzero(graph.areas > 0)[0]
    count = min(matching.transport_points, len(with_area))
    for steps, arap, turn, blur in TRANSPORT_SCHEDULE:
        for _ in range(steps):
            mine = np.sort(rng.choice(with_area, count, replace=False))
            theirs = np.sort(rng.choice(TARGET_SAMPLES, matching.transport_points, replace=False))

            def transport(moved, terms, mine=mine, theirs=theirs, blur=blur):
                add_transport(graph, moved, target, terms, blur, (mine, theirs), matching)

            state, _ = relax(graph, pattern, state, transport, Rigidity(arap, turn, neighbour))
    for steps, arap, turn, robust, gate in ICP_SCHEDULE:
        for _ in range(steps):

            def icp(moved, terms, robust=robust, gate=gate):
                add_icp(graph, moved, target, terms, robust, gate, matching)

            state, still = relax(graph, pattern, state, icp, Rigidity(arap, turn, neighbour))
            if still:
                break
    return clean(state)


def measure(graph: Graph, state: State, target: Target, matching: Matching | None = None) -> Fit:
    """How well ``state`` explains ``target``."""
    moved, _ = deform(graph, state)
    return add_icp(graph, moved, target, Terms(len(moved)), 0.03, 0.1, matching or Matching())
