"""Plans for tests: a small builder, and a strategy for any plan that the schema admits."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from precision_plan.facts.gpus import gpus
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.base import Section

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0-", exclude_categories=("Cs",)),
    min_size=1,
    max_size=8,
)
VERSIONS = {
    "megatron_core": ["0.10.0rc0", "0.12.0", "0.14.0", "0.16.1", "0.17.1", "0.19.0", "HEAD"],
    "transformer_engine": ["1.13.0", "2.4.0", "2.10.0", "2.20.2", "main"],
    "vllm": ["0.12.0", "0.33.0"],
}


def plan(**sections: Any) -> PrecisionPlan:
    """A plan from its sections."""
    return PrecisionPlan.model_validate(sections)


def any_plan() -> st.SearchStrategy[PrecisionPlan]:
    """Any combination of fields, sensible or not."""
    return _section(PrecisionPlan).map(PrecisionPlan.model_validate)


def _section(kind: type[Section], path: str = "") -> st.SearchStrategy[dict[str, Any]]:
    optional = {
        name: _values(field.annotation, f"{path}{name}", field.metadata)
        for name, field in kind.model_fields.items()
        if name != "origins"
    }
    return st.fixed_dictionaries({}, optional=optional)


def _values(annotation: Any, path: str, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if path == "hardware.gpu":
        return st.sampled_from([*gpus(), "abacus"])
    if path == "hardware.compute_capability":
        return st.sampled_from(["8.0", "9.0", "10.0", "12.1"])
    if path.startswith("software.") and path != "software.framework":
        known = VERSIONS.get(path.partition(".")[2], ["1.0"])
        return st.sampled_from([*known, "newest"])
    return _of_type(annotation, path, metadata)


def _of_type(annotation: Any, path: str, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if annotation is Any:
        return st.one_of(WORDS, st.booleans(), st.integers(0, 9), st.none(), st.lists(WORDS))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _of_type(arguments[0], path, [*metadata, *arguments[1:]])
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return st.one_of([_of_type(kind, path, metadata) for kind in kinds])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_of_type(arguments[0], path, []), max_size=3).map(tuple)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = arguments[1]
        if isinstance(inner, type) and issubclass(inner, Section):
            return st.dictionaries(WORDS, _section(inner, f"{path}."), max_size=3)
        return st.dictionaries(WORDS, _of_type(arguments[1], path, []), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return _section(annotation, f"{path}.")
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(1, 2**31),
        float: st.floats(0.015625, 1.0) | st.sampled_from([1e-6, 2e-5, 0.1]),
        str: WORDS,
    }
    return scalars.get(annotation, WORDS)
