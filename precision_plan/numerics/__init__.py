"""Reference quantizers, one module per format; torch is the only library they need.

Each module offers ``quantize`` (a named tuple of the tensors as they lie on disk), ``dequantize``,
``fake_quantize`` (quantized and dequantized, with a straight-through gradient) and ``storage``
(the stored tensors of a shape). Importing this package loads neither torch nor a format.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

FORMATS: Final[dict[str, str]] = {
    "fp8-block": "fp8_block",
    "fp8-group": "fp8_group",
    "fp8-tensor": "fp8_tensor",
    "fp8-channel": "fp8_channel",
    "fp8-fnuz": "fp8_fnuz",
    "mxfp8": "mxfp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "int4": "int4",
    "int4-awq": "int4_awq",
    "int8": "int8",
}
"""Name of a format to its module in this package."""


def load(name: str) -> ModuleType:
    """The module of the format ``name``."""
    if name not in FORMATS:
        raise KeyError(f"unknown format {name!r}; known: {', '.join(FORMATS)}")
    return import_module(f"{__name__}.{FORMATS[name]}")
