"""Types of plain YAML scalars, resolved as OmegaConf (and therefore Hydra) resolves them.

YAML 1.1 with two differences: ``1e5`` is a float, and dates stay text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STANDARD_TAG = "tag:yaml.org,2002:"

_FLOAT = re.compile(
    r"""(?x)^(?:
    [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN)
    )\Z"""
)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Implicit tags by first character: PyYAML's, without dates, with OmegaConf's floats."""
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items():
        found[first] = [pair for pair in pairs if pair[0] != STANDARD_TAG + "timestamp"]
        if first in set("-+0123456789."):
            found[first].append((STANDARD_TAG + "float", _FLOAT))
    return found


class Loader(_Base):  # type: ignore[misc]
    """Composes nodes and resolves their tags; it constructs nothing but plain scalars."""

    yaml_implicit_resolvers = _resolvers()


_SCALARS = frozenset(STANDARD_TAG + name for name in ("int", "float", "bool", "null"))
_constructor = yaml.constructor.SafeConstructor()


class NotAScalar(ValueError):
    """A text that does not spell a value of its explicit tag (``!!int x``)."""


def scalar(tag: str, text: str) -> Any:
    """The Python value of a scalar with a resolved tag; ``str`` where it is text.

    Raises:
        NotAScalar: if ``text`` does not spell a value of type ``tag``.
    """
    return _number(tag, text) if tag in _SCALARS else text


@lru_cache(maxsize=4096)
def _number(tag: str, text: str) -> Any:
    node = yaml.ScalarNode(tag, text)
    construct = _constructor.yaml_constructors[tag]
    try:
        return construct(_constructor, node)
    except (ValueError, KeyError, IndexError):
        kind = tag.removeprefix(STANDARD_TAG)
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise NotAScalar(f"{shown!r} is not of type {kind}") from None
