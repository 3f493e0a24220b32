"""Dataclasses mean what the real :mod:`dataclasses` makes of them."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.drift.dataclass_fields import MISSING, DataclassField, FieldReader
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.source import MEGATRON, open_tree
from precision_plan.drift.values import Computed, Values
from tests.drift import trees

PATH = "package/config.py"


def fields_of(source: str, name: str, files: dict[str, str] | None = None) -> list[DataclassField]:
    values, scope = trees.values_of({PATH: source, **(files or {})}, PATH)
    found = values.modules.find(name, scope)
    assert isinstance(found, Found)
    return FieldReader(values.modules, values).of(found)


_NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
_VALUES = st.sampled_from(
    [
        "1",
        "'x'",
        "None",
        "field(default=3)",
        "field(default_factory=list)",
        "field(default=4, init=False)",
    ]
)
_BODY = st.dictionaries(_NAMES, _VALUES, max_size=4)


@given(_BODY, _BODY, _BODY, st.booleans())
def test_as_dataclasses(
    first: dict[str, str], second: dict[str, str], third: dict[str, str], decorated: bool
) -> None:
    lines = ["from __future__ import annotations", "from dataclasses import dataclass, field"]
    classes = [("First", "", first), ("Second", "(First)", second), ("Third", "(Second)", third)]
    for name, bases, body in classes:
        if decorated or name != "Second":  # a class without the decorator adds no field
            lines.append("@dataclass(eq=False)")
        lines.append(f"class {name}{bases}:")
        lines += [f"    {field}: object = {value}" for field, value in body.items()] or ["    pass"]
    source = "\n".join(lines) + "\n"
    module = ModuleType("generated_dataclasses")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        exec(source, vars(module))

    found = fields_of(source, "Third")

    real = dataclasses.fields(vars(module)["Third"])
    assert [field.name for field in found] == [field.name for field in real]
    assert [field.init for field in found] == [field.init for field in real]
    assert [field.default for field in found] == [default_of(field) for field in real]


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING if field.default is dataclasses.MISSING else field.default


def test_what_is_no_field() -> None:
    source = """
        from dataclasses import dataclass, InitVar
        from typing import ClassVar
        @dataclass
        class Config:
            required: int
            shared: ClassVar[int] = 1
            passed: InitVar[int] = 2
            unannotated = 3
            made: object = make()
            def method(self): pass
    """
    required, made = fields_of(source, "Config")
    assert (required.name, required.default) == ("required", MISSING)
    assert (made.name, made.default) == ("made", Computed("make()"))


def test_a_base_class_of_another_module() -> None:
    files = {
        "package/__init__.py": "",
        "package/base.py": """
            from dataclasses import dataclass
            @dataclass
            class Base:
                size: int = 1
                kind: str = "a"
        """,
    }
    source = """
        from dataclasses import dataclass
        from .base import Base
        @dataclass
        class Config(Base):
            kind: str = "b"
    """
    found = fields_of(source, "Config", files)
    assert [(field.owner, field.name, field.default) for field in found] == [
        ("Base", "size", 1),
        ("Config", "kind", "b"),
    ]
    assert [field.source.rpartition(":")[0] for field in found] == ["package/base.py", PATH]


@pytest.mark.parametrize(
    "name",
    [
        "TransformerConfig",
        "MLATransformerConfig",
        "OptimizerConfig",
        "DistributedDataParallelConfig",
    ],
)
def test_installed_megatron_core(name: str) -> None:
    """Every field, in order, with its default wherever that can be told from the text."""
    from tests.conformance.megatron_classes import CLASSES, megatron_class

    real = dataclasses.fields(megatron_class(name))
    modules = Modules(open_tree(MEGATRON, "installed"))
    module = modules.named(CLASSES[name])
    assert module is not None
    found = modules.find(name, Scope(module))
    assert isinstance(found, Found)
    ours = FieldReader(modules, Values(modules)).of(found)
    assert [field.name for field in ours] == [field.name for field in real]
    told = [
        (field.name, field.default, default_of(true))
        for field, true in zip(ours, real, strict=True)
        if not isinstance(field.default, Computed) and not hasattr(field.default, "enum")
    ]
    assert [name for name, default, true in told if default != true] == []
    assert len(told) >= len(real) - 5  # functions of torch, and enumerations
