"""The gradient step: Gauss-Newton on rotation, position and distance against silhouette and colour.

The residual is the blurred difference of drawing and frame: a silhouette channel and three colour channels that are
free of tint and exposure. In the coarse round the silhouette is a distance transform cut off at some pixels, so that a
rim far off still pulls (it brings home 76 of 100 starts that are 45 degrees off, where blur alone brings 71); in the
finer ones it is coverage, whose blur pulls far enough and which thin parts cannot mislead. A small turn of
the camera or a small change of distance moves the picture of the object as a whole, so four of the six derivatives are
plain image gradients; only the two turns that show another side of the object are drawn, as central differences.
That makes an iteration five small z-buffer drawings, some twenty times cheaper than a differentiable rendering with its
backward pass, and it needs about fifteen iterations where Adam takes 160.

Many hypotheses are refined side by side. A step that does not lower the cost is taken back and damped more, so the
result is never worse than the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np

from v2m4.camera.subject import Subject
from v2m4.camera.view import View, color_spread, mean_color
from v2m4.transforms import rotation_from_vector

#: Weight of a colour channel beside the coverage channel; colours are scaled to unit contrast first.
COLOR_CHANNEL = 0.5
#: Shading, tint and blur change colours by about this much: with less contrast than this, colour counts little.
CONTRAST_FLOOR = 0.1
#: Residuals beyond this count less and less (Geman-McClure): a limb the generator forgot must not turn the object.
ROBUST = 0.6
#: A drawing's contrast counts as at least this share of the frame's when the two are brought to one contrast.
LEAST_CONTRAST = 0.3


@dataclass(frozen=True)
class Level:
    """One round: picture ``size``, ``blur`` (standard deviation) and ``reach`` of the distance transform in pixels (0:
    coverage instead), at most ``iterations`` steps."""

    size: int
    blur: float
    iterations: int
    reach: float = 0.0


@dataclass(frozen=True)
class Poses:
    """``rotations`` (N,3,3) and ``positions`` (N,3) of the mesh's centre in the view; ``costs`` (N,)."""

    rotations: np.ndarray
    positions: np.ndarray
    costs: np.ndarray

    def __getitem__(self, keep: np.ndarray) -> Poses:
        return Poses(self.rotations[keep], self.positions[keep], self.costs[keep])


def refine(view: View, subject: Subject, poses: Poses, level: Level, use_color: bool = True) -> Poses:
    """Refine N poses at one level; the cost of each is never higher than at the start."""
    target = _Target.of(view.resized(level.size), level, use_color and subject.colors is not None)
    count = len(poses.rotations)
    damping = np.full(count, 1e-2)
    best = replace(poses, costs=np.full(count, np.inf))
    trial_rotations, trial_positions = poses.rotations, poses.positions
    steps = np.zeros((count, 6))
    systems: list[tuple[np.ndarray, np.ndarray]] = [(np.eye(6), np.zeros(6))] * count
    active = np.ones(count, bool)
    for iteration in range(level.iterations + 1):
        index = np.flatnonzero(active)
        features, pixels = target.draw(subject, trial_rotations[index], trial_positions[index])
        costs = np.array([target.cost(f) for f in features])
        better = costs < best.costs[index]
        converged = better & (costs > best.costs[index] * (1 - 1e-3))
        damping[index] = np.where(better, damping[index] * 0.3, damping[index] * 8)
        taken = index[better]
        best = _replaced(best, taken, trial_rotations[taken], trial_positions[taken], costs[better])
        if iteration == level.iterations:
            break
        if len(taken):
            for k, system in zip(
                taken, target.systems(subject, best[taken], features[better], pixels[better]), strict=True
            ):
                systems[k] = system
        active[index] = ~converged & (damping[index] < 1e3)
        if not active.any():
            break
        for k in np.flatnonzero(active):
            normal, gradient = systems[k]
            steps[k] = np.linalg.solve(normal + np.diag(damping[k] * np.diag(normal) + 1e-9), gradient)
        trial_rotations, trial_positions = _moved(best, steps)
    return best


def _replaced(poses: Poses, at: np.ndarray, rotations: np.ndarray, positions: np.ndarray, costs: np.ndarray) -> Poses:
    out = Poses(poses.rotations.copy(), poses.positions.copy(), poses.costs.copy())
    out.rotations[at], out.positions[at], out.costs[at] = rotations, positions, costs
    return out


def _moved(poses: Poses, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Apply steps (N,6): turn of the object about camera x, y, z (radians), shift in the picture (tangent), and log
    distance."""
    turn = rotation_from_vector(np.clip(steps[:, :3], -0.35, 0.35))
    shift, growth = np.clip(steps[:, 3:5], -0.2, 0.2), np.exp(np.clip(steps[:, 5], -0.3, 0.3))
    direction = poses.positions[:, :2] / poses.positions[:, 2:] + shift
    depth = poses.positions[:, 2:] * growth[:, None]
    return turn @ poses.rotations, np.concatenate([direction * depth, depth], 1)


@dataclass(frozen=True)
class _Target:
    """What a drawing is compared with at one level. ``goal`` (S,S,C) is blurred; ``weight`` of a colour channel, 0
    where only silhouettes are compared."""

    view: View
    goal: np.ndarray
    blur: float
    reach: float
    weight: float

    @classmethod
    def of(cls, view: View, level: Level, color: bool) -> _Target:
        color = color and view.contrast > 0.01
        weight = COLOR_CHANNEL * view.contrast**2 / (view.contrast**2 + CONTRAST_FLOOR**2) if color else 0.0
        goal = _features(view.pixels, mean_color(view.pixels), view.contrast, weight, level.reach)
        return cls(view, _blurred(goal * view.inside[..., None], level.blur), level.blur, level.reach, weight)

    def draw(self, subject: Subject, rotations: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Blurred features (N,S,S,C) of the drawings, and the drawings (N,S,S,4)."""
        pixels = subject.draw(rotations, positions, self.view.K, self.view.size)
        return np.stack([_blurred(self.features(image, image), self.blur) for image in pixels]), pixels

    def features(self, image: np.ndarray, base: np.ndarray) -> np.ndarray:
        """(S,S,C) of a drawing, free of the tint and the exposure of ``base`` (S,S,4); 0 past the edge of the frame."""
        spread = max(color_spread(base), LEAST_CONTRAST * self.view.contrast) if self.weight else 1.0
        return _features(image, mean_color(base), spread, self.weight, self.reach) * self.view.inside[..., None]

    def residual(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual (S,S,C) and its robust weight (S,S,1)."""
        difference = features - self.goal
        square = np.einsum("ijc,ijc->ij", difference, difference)[..., None]
        return difference, (ROBUST**2 / (ROBUST**2 + square)) ** 2

    def cost(self, features: np.ndarray) -> float:
        difference = features - self.goal
        square = np.einsum("ijc,ijc->ij", difference, difference)
        return float((square / (1 + square / ROBUST**2)).mean(dtype=np.float64))

    def systems(
        self, subject: Subject, poses: Poses, features: np.ndarray, pixels: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Normal matrix (6,6) and right-hand side (6,) of each pose."""
        tilts = self._tilts(subject, poses, pixels)
        out = []
        for k, feature in enumerate(features):
            columns = [*tilts[k], *self._warps(feature, poses.positions[k])]
            difference, weight = self.residual(feature)
            jacobian = np.stack([c.ravel() for c in columns])
            weights = np.broadcast_to(weight, feature.shape).ravel()
            weighted = jacobian * weights
            out.append(
                ((weighted @ jacobian.T).astype(np.float64), -(weighted @ difference.ravel()).astype(np.float64))
            )
        return out

    def _tilts(self, subject: Subject, poses: Poses, pixels: np.ndarray) -> np.ndarray:
        """Central differences for turns about camera x and y: (N,2,S,S,C)."""
        reach = subject.radius / poses.positions[:, 2] * self.view.focal  # the object's radius in pixels
        step = np.clip(1.5 * max(self.blur, 1.0) / np.maximum(reach, 1.0), 0.01, 0.12)
        signs = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]], float)
        turns = rotation_from_vector(signs[None] * step[:, None, None])
        rotations = np.einsum("nsij,njk->nsik", turns, poses.rotations)
        count = len(rotations)
        drawn = subject.draw(
            rotations.reshape(-1, 3, 3), np.repeat(poses.positions, 4, 0), self.view.K, self.view.size
        ).reshape(count, 4, *pixels.shape[1:])
        out = []
        for k, base in enumerate(pixels):
            right, left, down, up = (self.features(image, base) for image in drawn[k])
            out.append([_blurred(d, self.blur) / (2 * step[k]) for d in (right - left, down - up)])
        return np.array(out)

    def _warps(self, feature: np.ndarray, position: np.ndarray) -> list[np.ndarray]:
        """Derivatives for a turn about camera z, shifts in x and y (tangent), and log distance."""
        size, focal = self.view.size, self.view.focal
        grad_y, grad_x = np.gradient(feature, axis=(0, 1))
        grid = np.arange(size, dtype=np.float32) + 0.5 - size / 2
        x = (grid - focal * position[0] / position[2])[None, :, None].astype(np.float32)
        y = (grid - focal * position[1] / position[2])[:, None, None].astype(np.float32)
        # a picture that moves by (u, v) changes by -(u * dI/dx + v * dI/dy)
        roll = grad_x * y - grad_y * x
        return [roll, -focal * grad_x, -focal * grad_y, grad_x * x + grad_y * y]


def _features(pixels: np.ndarray, mean: np.ndarray, spread: float, weight: float, reach: float) -> np.ndarray:
    """Silhouette, and colour about its mean in units of its contrast: (S,S,1) or (S,S,4) float32."""
    coverage = pixels[..., 3:]
    silhouette = _near_rim(pixels[..., 3], reach) if reach else coverage
    if not weight:
        return silhouette
    centred = (pixels[..., :3] - coverage * mean.astype(np.float32)) / np.float32(max(spread, 1e-3))
    return np.concatenate([silhouette, weight * centred], -1).astype(np.float32)


def _near_rim(coverage: np.ndarray, reach: float) -> np.ndarray:
    """(S,S,1): signed distance to the rim of the silhouette, from 0 at ``reach`` pixels outside to 1 at as many inside;
    0 everywhere where there is no silhouette."""
    solid = (coverage > 0.5).astype(np.uint8)
    if not solid.any():
        return np.zeros((*solid.shape, 1), np.float32)
    padded = np.pad(solid, 1)  # distances inside count to the edge of the picture, too
    inside = cv2.distanceTransform(padded, cv2.DIST_L2, 3)[1:-1, 1:-1]
    signed = inside - cv2.distanceTransform(1 - solid, cv2.DIST_L2, 3)
    return (np.clip(signed / reach, -1, 1) * 0.5 + 0.5)[..., None].astype(np.float32)


def _blurred(image: np.ndarray, sigma: float) -> np.ndarray:
    if sigma <= 0:
        return image
    return cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_CONSTANT).reshape(image.shape)
