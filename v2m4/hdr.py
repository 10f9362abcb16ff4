"""High dynamic range to sRGB: the transfer curves PQ and HLG (ITU-R BT.2100), toned down to what 8 bits show.

Light is counted in shares of reference white (203 cd/m², ITU-R BT.2408). Up to ``KNEE`` it stays as it is, so that what
is exposed normally looks as it does in an ordinary recording; what is brighter is compressed, all three colours by one
factor, so that hues stay.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from v2m4.transforms import linear_to_srgb

#: FFmpeg's numbers of the transfer curves.
TRANSFERS = {16: "PQ", 18: "HLG"}
REFERENCE_WHITE = 203.0
#: HLG is relative; it is shown as on a screen of this peak, with the system gamma that belongs to it.
HLG_PEAK, HLG_GAMMA = 1000.0, 1.2
KNEE = 0.7
#: BT.2020 -> BT.709 primaries, linear light (ITU-R BT.2087); luminance of BT.2020.
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], np.float32)
_LUMINANCE_2020 = np.array([0.2627, 0.6780, 0.0593], np.float32)
_LUMINANCE_709 = np.array([0.2126, 0.7152, 0.0722], np.float32)


def to_srgb(image: np.ndarray, transfer: str) -> np.ndarray:
    """(H,W,3) uint16, BT.2020 primaries, ``transfer`` "PQ" or "HLG", full range -> (H,W,3) uint8 sRGB."""
    light = _table(transfer)[image]
    if transfer == "HLG":  # the table gives the scene's light; the screen adds its gamma to the luminance
        luminance = (light @ _LUMINANCE_2020)[..., None]
        light = (
            light * np.maximum(luminance, 1e-6) ** np.float32(HLG_GAMMA - 1) * np.float32(HLG_PEAK / REFERENCE_WHITE)
        )
    light = _inside(light @ _TO_709.T)
    brightest = light.max(-1, keepdims=True)
    light = light * (_toned(brightest) / np.maximum(brightest, 1e-6))
    return np.round(255 * linear_to_srgb(np.clip(light, 0, 1))).astype(np.uint8)


def _toned(light: np.ndarray) -> np.ndarray:
    over = np.maximum(light - KNEE, 0)
    return np.where(light <= KNEE, light, KNEE + (1 - KNEE) * (1 - np.exp(-over / (1 - KNEE))))


def _inside(light: np.ndarray) -> np.ndarray:
    """Colours that BT.709 cannot show have a negative part: mixed with their own grey until they have none."""
    grey = np.maximum((light @ _LUMINANCE_709)[..., None], 0)
    least = light.min(-1, keepdims=True)
    share = np.where(least < 0, grey / np.maximum(grey - least, 1e-9), 1)
    return grey + share * (light - grey)


@cache
def _table(transfer: str) -> np.ndarray:
    """Code value of 16 bits -> light, float32: of the screen in reference whites (PQ), of the scene, 0 to 1 (HLG)."""
    signal = np.arange(1 << 16) / 65535
    if transfer == "PQ":
        m1, m2, c1, c2, c3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
        root = signal ** (1 / m2)
        light = (np.maximum(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1) * 10_000 / REFERENCE_WHITE
    else:
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        light = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    return light.astype(np.float32)
