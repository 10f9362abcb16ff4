"""Import torchvision where it is installed beside a torch it was not built for.

The CPU build of torch and the wheel of torchvision that belongs to it differ in how they were compiled, so
torchvision's own operators are missing and its import fails ("operator torchvision::nms does not exist"), and with it
whatever looks whether torchvision is there. Nobody here calls those operators; it is enough that their names are known.
"""

from __future__ import annotations

from typing import Any

#: Keeps the definitions alive.
_defined: list[Any] = []

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def import_torchvision() -> Any:
    """The module torchvision; None when it is not installed, or cannot be imported all the same."""
    import importlib.util
    import sys

    import torch

    if importlib.util.find_spec("torchvision") is None:
        return None
    try:
        import torchvision
    except RuntimeError as error:
        if "does not exist" not in str(error) or _defined:
            return None
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left half done
        library = torch.library.Library("torchvision", "DEF")
        _defined.append(library)
        for operator in _OPERATORS:
            library.define(operator)
        try:
            import torchvision
        except (RuntimeError, ImportError):
            return None
    except ImportError:
        return None
    return torchvision
