"""From one mesh per keyframe to one mesh that moves.

Outward from the anchor both ways, each keyframe is registered from its solved neighbour; then all keyframes are solved
together. Keyframes that are not trusted are never followed: they get the state between their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from v2m4.topology.align import align
from v2m4.topology.graph import Graph, State, build_graph, deform, deform_vertices, moved_normals
from v2m4.topology.noise import pose_correction
from v2m4.topology.register import Fit, Matching, Target, add_icp, measure, register
from v2m4.topology.solve import Pattern, Rigidity, Terms, clean, relax
from v2m4.topology.surface import Samples, Surface
from v2m4.topology.temporal import TemporalOptions, solve_together
from v2m4.topology.trust import MISSING_SHARE, missing_share
from v2m4.transforms import nearest_rotation, rotation_from_vector

COARSE_POINTS = 1500


class Store(Protocol):
    """Where finished keyframes of the chain are kept, so that an interrupted run goes on."""

    def load(self, keyframe: int) -> dict[str, np.ndarray] | None: ...
    def save(self, keyframe: int, arrays: dict[str, np.ndarray]) -> None: ...


class MemoryStore:
    """Keeps them in memory."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, np.ndarray]] = {}

    def load(self, keyframe: int) -> dict[str, np.ndarray] | None:
        return self.kept.get(keyframe)

    def save(self, keyframe: int, arrays: dict[str, np.ndarray]) -> None:
        self.kept[keyframe] = arrays


class PictureTerms(Protocol):
    """What the pictures say of each keyframe (:class:`v2m4.topology.video.VideoTerms`)."""

    def __call__(self, k: int, moved: np.ndarray, terms: Terms) -> None: ...
    def eye(self, k: int) -> np.ndarray: ...
    def hidden(self, k: int, moved: np.ndarray) -> np.ndarray: ...


ImageTerms = Callable[[Graph], PictureTerms]


class Track(Protocol):
    """Wraps the loop over keyframes (progress)."""

    def __call__(self, items: Iterable[Any], label: str) -> Iterator[Any]: ...


def untracked(items: Iterable[Any], label: str) -> Iterator[Any]:
    """No progress."""
    return iter(items)


@dataclass(frozen=True)
class SequenceOptions:
    """Settings of a whole registration."""

    nodes: int = 250
    matching: Matching = field(default_factory=Matching)
    temporal: TemporalOptions = field(default_factory=TemporalOptions)
    #: A keyframe whose registered fit explains or covers less than this is not trusted.
    least_fit: float = 0.55


@dataclass(frozen=True)
class Registration:
    """``vertices`` (K,V,3) working units; ``fits`` and ``trusted`` per keyframe; the graph and its states.

    ``corrections`` (K,4,4) similarities, working units: what takes each keyframe's mesh as given to where the joint
    pass says that it belongs.
    """

    graph: Graph
    states: list[State]
    vertices: np.ndarray
    fits: list[Fit]
    trusted: np.ndarray
    corrections: np.ndarray
    lacking: np.ndarray  #: (K,) bool: not trusted because a part is missing


@dataclass(frozen=True)
class _Frames:
    """What the joint pass knows of each keyframe (temporal.FrameTerms)."""

    graph: Graph
    targets: list[Target | None]
    believed: np.ndarray
    pictures: PictureTerms | None
    matching: Matching

    def mesh(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        target = self.targets[k]
        if target is not None and self.believed[k]:
            add_icp(self.graph, moved, target, terms, 0.03, 0.10, self.matching)

    def video(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        if self.pictures is not None:
            self.pictures(k, moved, terms)

    def eye(self, k: int) -> np.ndarray | None:
        return None if self.pictures is None else self.pictures.eye(k)

    def hidden(self, k: int, moved: np.ndarray) -> np.ndarray:
        return np.zeros(len(self.graph.nodes), bool) if self.pictures is None else self.pictures.hidden(k, moved)


def register_sequence(
    surfaces: Sequence[Surface],
    times_s: np.ndarray,
    anchor: int,
    trusted: np.ndarray,
    seeds: Sequence[int],
    options: SequenceOptions | None = None,
    *,
    image_terms: ImageTerms | None = None,
    store: Store | None = None,
    track: Track = untracked,
) -> Registration:
    """Register every keyframe to the anchor's topology.

    ``surfaces`` in working units; ``trusted`` (K,) bool is what is known beforehand; ``seeds`` one per keyframe, so
    that the order of the work does not matter. ``image_terms(graph)`` gives the function that adds rows from the video
    to the joint pass. Where all keyframes already share their faces, nothing is estimated: those vertices are taken.
    """
    options, store = options or SequenceOptions(), store or MemoryStore()
    graph = build_graph(surfaces[anchor], options.nodes)
    pattern = Pattern(graph)
    if all(np.array_equal(s.faces, graph.surface.faces) for s in surfaces):
        return _known_partners(graph, pattern, surfaces, times_s, np.asarray(trusted, bool))
    targets: list[Target | None] = [
        Target(s, seed, options.matching.icp_features) if ok else None
        for s, seed, ok in zip(surfaces, seeds, trusted, strict=True)
    ]
    chained = _chain(graph, pattern, targets, anchor, seeds, options, store, track)
    believed = np.array([s is not None for s in chained])
    states = bridge(chained, times_s)
    seen = image_terms(graph) if image_terms is not None else None

    corrections = np.tile(np.eye(4), (len(states), 1, 1))
    lacking = np.zeros(len(states), bool)
    if len(states) > 1:
        data = _Frames(graph, targets, believed, seen, options.matching)
        solution = solve_together(graph, pattern, states, times_s, data, options.temporal)
        found = _missing(graph, solution.states, targets, believed)
        if found.any() and not found[believed].all():
            lacking = found
            believed &= ~found
            solution = solve_together(graph, pattern, solution.states, times_s, data, options.temporal)
        states = solution.states
        if solution.errors.shape[1]:
            noise = options.temporal.noise
            corrections = np.stack([
                pose_correction(e, s.position, data.eye(k), noise)
                for k, (e, s) in enumerate(zip(solution.errors, states, strict=True))
            ])  # fmt: skip
    fits = [
        measure(graph, s, t, options.matching) if t is not None else Fit(0.0, 0.0, 0.0)
        for s, t in zip(states, targets, strict=True)
    ]
    vertices = np.stack([deform_vertices(graph, s) for s in states])
    return Registration(graph, states, vertices, fits, believed, corrections, lacking)


def _missing(graph: Graph, states: list[State], targets: Sequence[Target | None], believed: np.ndarray) -> np.ndarray:
    """(K,) bool: believed keyframes whose mesh lacks a part that the motion has."""
    return np.array([
        ok and t is not None and missing_share(graph, deform(graph, s)[0], t.samples) > MISSING_SHARE
        for s, t, ok in zip(states, targets, believed, strict=True)
    ])  # fmt: skip


def _known_partners(
    graph: Graph, pattern: Pattern, surfaces: Sequence[Surface], times_s: np.ndarray, trusted: np.ndarray
) -> Registration:
    """Meshes that share one face list: their vertices are taken as they are; only bad keyframes are bridged."""
    states: list[State | None] = [
        follow(graph, pattern, s.vertices) if ok else None for s, ok in zip(surfaces, trusted, strict=True)
    ]
    whole = bridge(states, times_s)
    vertices = np.stack(
        [s.vertices if ok else deform_vertices(graph, w) for s, w, ok in zip(surfaces, whole, trusted, strict=True)]
    )
    fits = [Fit(1.0, 1.0, 0.0) if ok else Fit(0.0, 0.0, 0.0) for ok in trusted]
    still = np.tile(np.eye(4), (len(surfaces), 1, 1))
    return Registration(graph, whole, vertices, fits, trusted, still, np.zeros(len(surfaces), bool))


def follow(graph: Graph, pattern: Pattern, vertices: np.ndarray) -> State:
    """The state that carries the rest vertices to these vertices (V,3), as well as the graph can."""
    wanted = graph.face_points.on(vertices, graph.surface.faces)
    rest, there = graph.points.mean(0), wanted.mean(0)
    turn = nearest_rotation((wanted - there).T @ (graph.points - rest))
    state = State(np.tile(turn, (len(graph.nodes), 1, 1)), (graph.nodes - rest) @ turn.T + there)
    ids = np.arange(len(wanted))

    def data(moved: np.ndarray, terms: Terms) -> None:
        terms.add_position(ids, moved - wanted, graph.areas)

    for _ in range(15):
        state, still = relax(graph, pattern, state, data, Rigidity(0.1, 0.05), 1e-5)
        if still:
            break
    return clean(state)


def chain_order(count: int, anchor: int) -> list[tuple[int, int]]:
    """(keyframe, the side it is reached from: -1 earlier, +1 later), outward from the anchor."""
    return [(k, -1) for k in range(anchor + 1, count)] + [(k, 1) for k in range(anchor - 1, -1, -1)]


def _chain(graph, pattern, targets, anchor, seeds, options, store, track) -> list[State | None]:
    """States of the keyframes that could be registered, None elsewhere."""
    count = len(targets)
    states: list[State | None] = [None] * count
    states[anchor] = graph.rest()
    for k, side in track(chain_order(count, anchor), "register keyframes"):
        target = targets[k]
        if target is None:
            continue
        kept = store.load(k)
        if kept is None:
            kept = _arrays(_register_one(graph, pattern, _last(states, k, side), target, seeds[k], options))
            store.save(k, kept)
        state = State(kept["rotation"], kept["position"])
        fit = measure(graph, state, target, options.matching)
        if min(fit.explained, fit.covered) >= options.least_fit:
            states[k] = state
    return states


def _last(states: list[State | None], k: int, side: int) -> State:
    """The nearest registered state on the anchor's side of keyframe k."""
    while True:
        k += side
        state = states[k]
        if state is not None:
            return state


def _arrays(state: State) -> dict[str, np.ndarray]:
    return {"rotation": state.rotation, "position": state.position}


def _register_one(graph, pattern, neighbour, target, seed, options) -> State:
    """Coarse rigid alignment of the neighbour's state, then the dense registration."""
    start = carry(graph, neighbour, target, seed)
    return register(graph, pattern, start, target, neighbour, seed, options.matching)


def carry(graph: Graph, state: State, target: Target, seed: int) -> State:
    """``state`` moved rigidly towards ``target`` where that brings it closer."""
    moved, _ = deform(graph, state)
    normals = moved_normals(graph, moved)
    rng = np.random.default_rng(seed)
    count = min(COARSE_POINTS, int((graph.areas > 0).sum()))
    chosen = np.sort(rng.choice(len(moved), count, replace=False, p=graph.areas / graph.areas.sum()))
    s = target.samples
    there = Samples(s.points[:COARSE_POINTS], s.normals[:COARSE_POINTS], s.colors[:COARSE_POINTS])
    motion = align(Samples(moved[chosen], normals[chosen], graph.colors[chosen]), there, starts="near")
    return State(motion.rotation @ state.rotation, motion.apply(state.position))


def bridge(states: Sequence[State | None], times_s: np.ndarray) -> list[State]:
    """Fill keyframes without a state: between their neighbours in time, or like the nearest one at the ends."""
    good = [k for k, s in enumerate(states) if s is not None]
    out: list[State] = []
    for k, state in enumerate(states):
        if state is None:
            after = int(np.searchsorted(good, k))
            low, high = good[max(after - 1, 0)], good[min(after, len(good) - 1)]
            a, b = states[low], states[high]
            assert a is not None and b is not None
            span = times_s[high] - times_s[low]
            state = between(a, b, float(np.clip((times_s[k] - times_s[low]) / span, 0, 1)) if span > 0 else 0.0)
        out.append(state)
    return out


def between(a: State, b: State, share: float) -> State:
    """The state at ``share`` of the way from a to b: the common rigid motion along its screw-free arc, the rest in a's
    frame. Two rigidly moved copies give a rigidly moved copy, not a shrunken one."""
    ca, cb = a.position.mean(0), b.position.mean(0)
    motion = nearest_rotation((b.position - cb).T @ (a.position - ca))
    vector = Rotation.from_matrix(motion).as_rotvec()
    part = rotation_from_vector(share * vector)
    shape = (1 - share) * (a.position - ca) + share * (b.position - cb) @ motion
    rotation = nearest_rotation((1 - share) * a.rotation + share * motion.T @ b.rotation)
    return State(part @ rotation, shape @ part.T + (1 - share) * ca + share * cb)
