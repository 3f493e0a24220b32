"""Flags generated from dataclass fields, by the rules of Megatron's factory."""

from __future__ import annotations

import pytest

from precision_plan.drift.argparse_rules import ENUM_NAME, Flag
from precision_plan.drift.dataclass_fields import FieldReader
from precision_plan.drift.group_factory import FACTORY_FILE, factory_digest, generated_flag
from precision_plan.drift.modules import Found, Modules
from tests.drift import trees

PATH = "package/config.py"
HEADER = """
import enum
import signal
import typing
from dataclasses import dataclass, field
from typing import Callable, List, Literal, Optional, Union
import torch
class Backend(enum.Enum):
    flash = 1
    auto = 2
@dataclass
class Config:
    """


def flag_of(declaration: str) -> Flag | None:
    values, scope = trees.values_of({PATH: HEADER + declaration + "\n"}, PATH)
    found = values.modules.find("Config", scope)
    assert isinstance(found, Found)
    (field,) = FieldReader(values.modules, values).of(found)
    return generated_flag(field, values)


def shown(flag: Flag | None) -> tuple[object, ...]:
    assert flag is not None
    return (flag.flags, flag.action, flag.type, flag.choices, flag.nargs, flag.default)


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("a_b: int = 3", (("--a-b",), "store", "int", None, None, 3)),
        ("a: Optional[str] = None", (("--a",), "store", "str", None, None, None)),
        ("a: float | None = 0.5", (("--a",), "store", "float", None, None, 0.5)),
        ("a: Union[int, None] = 1", (("--a",), "store", "int", None, None, 1)),
        ("a: bool = False", (("--a",), "store_true", None, None, None, False)),
        ("a: bool = True", (("--no-a", "--disable-a"), "store_false", None, None, None, True)),
        (
            "a: Optional[bool] = None",
            (("--no-a", "--disable-a"), "store_false", None, None, None, None),
        ),
        ("a: Literal['x', 'y'] = 'x'", (("--a",), "store", "str", ("x", "y"), None, "x")),
        (
            "a: Optional[Literal['x', 'y']] = None",
            (("--a",), "store", "str", ("x", "y"), None, None),
        ),
        ("a: typing.Literal[1, 2] = 1", (("--a",), "store", "int", ("1", "2"), None, 1)),
        (
            "a: list[int] = field(default_factory=list)",
            (("--a",), "store", "int", None, "+", []),
        ),
        ("a: Optional[List[str]] = None", (("--a",), "store", "str", None, "+", None)),
        (
            "a: Backend = Backend.auto",
            (("--a",), "store", ENUM_NAME, ("flash", "auto"), None, "auto"),
        ),
        ("a: torch.dtype = None", (("--a",), "store", "dtype", None, None, None)),
        (
            "a: bool = field(default=True, metadata={'argparse_meta': {'arg_names': ['--no-b']}})",
            (("--no-b",), "store_false", None, None, None, True),
        ),
        (
            "a: int = field(default=0, metadata={'argparse_meta': {'default': None}})",
            (("--a",), "store", "int", None, None, None),
        ),
        (
            "a: int | str = field(default=0, metadata={'argparse_meta': "
            "{'type': str, 'nargs': '+', 'help': 'text'}})",
            (("--a",), "store", "str", None, "+", 0),
        ),
    ],
)
def test_flag(declaration: str, expected: tuple[object, ...]) -> None:
    assert shown(flag_of(declaration)) == expected


def test_dest_is_the_field_unless_told_otherwise() -> None:
    flag = flag_of("some_field: int = 1")
    assert flag is not None and flag.dest == "some_field"
    meta = "{'argparse_meta': {'arg_names': ['--profile'], 'dest': 'profile'}}"
    flag = flag_of(f"some_field: bool = field(default=False, metadata={meta})")
    assert flag is not None and (flag.flags, flag.dest) == (("--profile",), "profile")


def test_an_enumeration_from_outside_has_computed_choices() -> None:
    flag = flag_of("a: signal.Signals = signal.SIGTERM")
    assert flag is not None
    assert str(flag.choices) == "computed: list(signal.Signals)"
    assert str(flag.default) == "computed: signal.SIGTERM"


@pytest.mark.parametrize(
    "declaration",
    [
        "a: int",
        "a: int | str = 0",
        "a: Callable = None",
        "a: Optional[Callable] = None",
        "a: None | int = None",
        "a: dict[str, int] = field(default_factory=dict)",
    ],
)
def test_what_the_factory_refuses(declaration: str) -> None:
    assert flag_of(declaration) is None


FACTORY = '''
class ArgumentGroupFactory:
    """Text of the documentation."""

    def build(self, parser):
        # a remark
        return parser.add_argument("--x")
'''


def digest(source: str) -> str | None:
    return factory_digest(Modules(trees.tree({FACTORY_FILE: source})))


def test_digest_ignores_layout_and_text() -> None:
    other = FACTORY.replace("Text of the", "Another").replace("        # a remark\n", "\n\n")
    assert digest(other.replace('("--x")', '( "--x" )')) == digest(FACTORY) is not None


def test_digest_tells_code() -> None:
    assert digest(FACTORY.replace("--x", "--y")) != digest(FACTORY)
    assert digest("x = 1\n") is None
