"""The little language of PYTORCH_CUDA_ALLOC_CONF: ``option:value,option:[...]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from precision_plan.facts._load import table

ALLOC_CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")


@lru_cache(maxsize=1)
def _takes() -> Mapping[str, str]:
    return MappingProxyType({row["option"]: row["takes"] for row in table("allocator_options")})


def _fits(kind: str, value: str) -> bool:
    if kind == "bool":
        return value in {"True", "False"}
    if kind == "int":
        return re.match(r"[+-]?\d", value) is not None
    try:
        return 0 < float(value) < 1
    except ValueError:
        return False


_WANTED = {"bool": "True or False", "int": "a number of MiB", "fraction": "a number from 0 to 1"}


def refused_option(text: str) -> str | None:
    """Why torch refuses an allocator configuration; ``None`` if nothing is known against it.

    Options come and go with torch's releases: one that is not listed is left alone.
    """
    for item in _ITEM.findall(text.replace(" ", "")):
        option, colon, value = item.partition(":")
        if not colon:
            return f"{item} is no option:value"
        kind = _takes().get(option)
        if kind is not None and not _fits(kind, value):
            return f"{option} takes {_WANTED[kind]}, not {value!r}"
    return None
