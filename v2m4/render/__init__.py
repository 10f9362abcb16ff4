"""The renderer: visibility, differentiable pictures, shading, previews. A library in its own right.

Cameras are OpenCV's (x right, y down, z forward), pixel = K p / z, pixel centres at +0.5, row 0 on top. Importing this
package does not load torch; ``render`` does, when it is first asked for. Every function may be called from several
threads at once; ``V2M4_THREADS`` says how many threads one call uses itself.
"""

from typing import TYPE_CHECKING, Any

from v2m4.protocols import Fragments, Rasterizer
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import ZBuffer, masks

if TYPE_CHECKING:
    from v2m4.render.differentiable import render

__all__ = ["Edges", "Fragments", "Rasterizer", "ZBuffer", "masks", "render"]


def __getattr__(name: str) -> Any:
    if name == "render":
        from v2m4.render.differentiable import render

        return render
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
