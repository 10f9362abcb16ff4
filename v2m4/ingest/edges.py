"""Colours at the edge of the object, and what counts as object.

A pixel on the edge shows object and background mixed. What is stored is straight alpha: the object's own colour, so
that nothing of the background gets into a texture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from v2m4.errors import InputError


class NoObject(InputError):
    """A picture whose mask is empty."""


_CORE_PX = 2.1  # from this depth on a pixel shows the object alone (chroma at half size reaches a little further)
_FILL_PX = 8
#: Share of the object's area below which a hole or an island in a network's mask is none.
_CRUMB_SHARE = 0.001
#: Alpha below this is noise, of a lossy video or of a network.
HAZE = 13
#: Alpha from which on a pixel is the object for the stages that follow.
SOLID = 128


def box(mask: np.ndarray, margin: int) -> tuple[slice, slice]:
    """The part of the picture that holds all of the mask, with a margin; the whole picture for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return slice(0, mask.shape[0]), slice(0, mask.shape[1])
    top, left = max(0, int(rows[0]) - margin), max(0, int(columns[0]) - margin)
    bottom, right = min(mask.shape[0], int(rows[-1]) + margin + 1), min(mask.shape[1], int(columns[-1]) + margin + 1)
    return slice(top, bottom), slice(left, right)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two masks (H,W) bool; 1 where both are empty."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else 1.0


def depth_px(mask: np.ndarray) -> np.ndarray:
    """Distance in pixels from each pixel of the mask to the nearest one outside it (the picture's border is inside)."""
    import cv2

    return np.asarray(cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 5))


def core(solid: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Pixels that show the object alone: deep ones and, far from those, the ridge of parts too thin to have any."""
    import cv2

    deep = depth >= _CORE_PX
    ridge = depth >= cv2.dilate(depth, np.ones((3, 3), np.uint8)) - 1e-6
    near = cv2.dilate(deep.astype(np.uint8), np.ones((7, 7), np.uint8)).astype(bool)
    return np.asarray(solid & (deep | (ridge & ~near)))


def nearest(image: np.ndarray, among: np.ndarray) -> np.ndarray:
    """(H,W,C): at each pixel the value of the nearest pixel in ``among``; the image itself where that is empty."""
    if not among.any():
        return image
    return np.asarray(image.reshape(-1, image.shape[2]).take(_nearest_places(among), axis=0))


def _nearest_places(among: np.ndarray) -> np.ndarray:
    """(H,W) flat index of the nearest pixel in ``among`` (H,W) bool, which has one."""
    import cv2

    source = (~among).view(np.uint8)
    found = cv2.distanceTransformWithLabels(source, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)[1]
    labels: np.ndarray = np.asarray(found, np.int32)
    places = np.flatnonzero(among.ravel())
    first = np.zeros(int(labels.max()) + 1, np.int64)
    first[labels.ravel().take(places)] = places
    return np.asarray(first.take(labels))


def cut_out(image: np.ndarray, alpha: np.ndarray, background: tuple[float, float, float] | None = None) -> np.ndarray:
    """(H,W,3) and its alpha (H,W) -> (H,W,4) uint8, straight: the background's share is taken out of edge colours.

    With the one colour of a plain ``background`` the colour is un-mixed; without it an edge pixel takes the
    nearest solid colour. What is transparent keeps the picture's colour: :func:`fill_transparent` is the last step.
    """
    part = box(alpha > 0, 4)
    out = np.dstack([image, alpha])
    out[part][..., :3] = _clean_edge(image[part], alpha[part], background)
    return out


def _clean_edge(image: np.ndarray, alpha: np.ndarray, background: tuple[float, float, float] | None) -> np.ndarray:
    solid = alpha >= 250
    inner = nearest(image, core(solid, depth_px(solid))).astype(np.float32)
    if background is None:
        return np.where(solid[..., None], image, inner.astype(np.uint8))
    share = (alpha.astype(np.float32) / 255)[..., None]
    back = np.asarray(background, np.float32)
    unmixed = np.clip(back + (image - back) / np.maximum(share, 1e-3), 0, 255)
    trust = np.clip((share - 0.3) / 0.4, 0, 1)  # the smaller the share, the more noise dividing by it makes
    return np.where(solid[..., None], image, np.round(inner + trust * (unmixed - inner)).astype(np.uint8))


def without_crumbs(alpha: np.ndarray) -> np.ndarray:
    """(H,W) uint8 as a network gives it, without pinholes in the object and without islands of haze or a few pixels.

    Both by area against the object's, so that a gap between arm and body and a hand beyond it stay; a part that hangs
    together with the object stays however thin it is.
    """
    solid = alpha > 127
    least = max(_CRUMB_SHARE * int(solid.sum()), 1.0)
    out = alpha.copy()
    holes, sizes = _patches(~solid)
    outside = np.unique(np.concatenate([holes[0], holes[-1], holes[:, 0], holes[:, -1]]))
    small = sizes < least
    small[outside] = False  # a bay at the picture's border is no hole
    out[small[holes] & ~solid] = 255
    seen = out >= HAZE
    islands, _ = _patches(seen)
    solid_area = np.bincount(islands.ravel(), weights=(out > 127).ravel(), minlength=int(islands.max()) + 1)
    out[(solid_area < least)[islands] & seen | ~seen] = 0
    return out


def _patches(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H,W) number of the patch of each pixel of ``mask``, 0 outside it, and the patches' areas."""
    import cv2

    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    sizes = np.array(stats[:, cv2.CC_STAT_AREA])
    sizes[0] = mask.size
    return np.asarray(labels), sizes


def fill_transparent(image: np.ndarray) -> np.ndarray:
    """(H,W,4): transparent pixels near the object take the mean colour of what shows around them, so that filters bring
    in no fringe.

    Far from the object all have its mean colour: nothing reads it there, and a flat picture stays a small file.
    """
    import cv2

    image = np.ascontiguousarray(image)
    shown = image[..., 3] > 0
    if not shown.any():
        return image
    mean = np.round(cv2.mean(image, mask=shown.view(np.uint8))[:3])
    pixels = image.view(np.uint32)[..., 0]  # a pixel at a time, not a channel
    out = np.where(shown, pixels, _packed([*mean, 0]))
    part = box(shown, _FILL_PX)
    # Colours and a one where the object shows, nothing elsewhere: their sums over a window give its mean colour.
    counted = np.where(shown[part], pixels[part] | _packed([0, 0, 0, 255]), 0)
    size = (2 * _FILL_PX + 1,) * 2
    channels = counted.view(np.uint8).reshape(*counted.shape, 4)
    sums = cv2.boxFilter(channels, cv2.CV_32F, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
    places = np.flatnonzero((sums[..., 3] > 0) & ~shown[part])
    around: np.ndarray = np.asarray(sums, np.float32).reshape(-1, 4).take(places, 0)
    around *= 255 / around[:, 3:]
    around[:, 3] = 0
    inner = out[part].copy()
    inner.reshape(-1)[places] = np.round(around).astype(np.uint8).view(np.uint32)[:, 0]
    out[part] = inner
    return out.view(np.uint8).reshape(image.shape)


def _packed(pixel: Sequence[float]) -> np.uint32:
    return np.array(pixel, np.uint8).view(np.uint32)[0]


def is_premultiplied(images: Iterable[np.ndarray]) -> bool:
    """Whether colours are already multiplied by alpha: then edge pixels are alpha times the colour further in.

    False where the edge cannot tell (no half-transparent pixels, or a black object, for which both are the same).
    """
    straight = multiplied = pixels = 0.0
    for image in images:
        alpha = image[..., 3].astype(np.float32) / 255
        edge = (alpha > 0.1) & (alpha < 0.9)
        if (image[edge][:, :3] > image[edge][:, 3:] + 3).any(1).sum() > 0.02 * edge.sum():
            return False  # brighter than any multiplied colour can be
        solid = alpha > 0.98
        inner = nearest(image, solid)[..., :3].astype(np.float32)[edge]
        seen, share = image[..., :3].astype(np.float32)[edge], alpha[edge][:, None]
        straight += float(np.abs(seen - inner).sum())
        multiplied += float(np.abs(seen - inner * share).sum())
        pixels += edge.sum() * bool(solid.any())
    return bool(pixels >= 20 and multiplied < 0.5 * straight)


def unmultiply(image: np.ndarray) -> np.ndarray:
    """(H,W,4) uint8 with colours multiplied by alpha -> straight."""
    alpha = image[..., 3:].astype(np.float32)
    colour = np.where(alpha > 0, image[..., :3] * (255 / np.maximum(alpha, 1)), 0)
    return np.concatenate([np.clip(np.round(colour), 0, 255).astype(np.uint8), image[..., 3:]], -1)


def foreground(alpha: np.ndarray) -> np.ndarray:
    """(H,W) bool: at least half as opaque as the most opaque pixel; nothing where all is (nearly) transparent."""
    top = int(alpha.max(initial=0))
    return alpha >= max(top / 2, 1) if top >= 26 else np.zeros(alpha.shape, bool)


def has_object(alpha: np.ndarray) -> bool:
    """Whether this mask (H,W) uint8 shows more than a speck, and not only faintly."""
    return int((alpha >= SOLID).sum()) >= 4


def require_object(alpha: np.ndarray, frame: str, method: str) -> None:
    """NoObject, which names the frame, when its mask is empty, or so faint that no stage would see anything ("given"
    alpha aside, which is stretched)."""
    remedy = {
        "masks": "paint its mask",
        "given": "paint its alpha",
        "key": "the object may have left the picture or have the background's colour: cut the clip there, give alpha",
    }.get(method, "cut the clip there, give the pictures with alpha") + ", or set ingest.empty to skip or hold"
    if int(foreground(alpha).sum()) < 4:
        raise NoObject(f"{frame}: there is no object in it, its mask is empty", remedy)
    if method != "given" and not has_object(alpha):
        raise NoObject(f"{frame}: there is no object in it, its mask reaches only {int(alpha.max())} of 255", remedy)
