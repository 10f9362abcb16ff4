"""The renderer: visibility, differentiable pictures, shading, previews. A library in its own right.

Cameras are OpenCV's (x right, y down, z forward), pixel = K p / z, pixel centres at +0.5, row 0 on top. Importing this
package does not load torch; the differentiable functions do, when they are first asked for. Every function may be
called from several threads at once; ``V2M4_THREADS`` says how many threads one call uses itself.
"""

from typing import TYPE_CHECKING, Any

from v2m4.protocols import Fragments, Rasterizer
from v2m4.render.backends import load_rasterizer
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import ZBuffer, masks

if TYPE_CHECKING:
    from v2m4.render.differentiable import Raster, antialias, derivatives, interpolate, rasterize, render
    from v2m4.render.sampling import sample_texture

__all__ = [
    "Edges",
    "Fragments",
    "Raster",
    "Rasterizer",
    "ZBuffer",
    "antialias",
    "derivatives",
    "interpolate",
    "load_rasterizer",
    "masks",
    "rasterize",
    "render",
    "sample_texture",
]


def __getattr__(name: str) -> Any:
    if name == "sample_texture":
        from v2m4.render.sampling import sample_texture

        return sample_texture
    if name in __all__:
        from v2m4.render import differentiable

        return getattr(differentiable, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
