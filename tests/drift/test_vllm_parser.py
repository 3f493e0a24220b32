"""How vLLM's parser is read: annotations as options, and what is done to them on the way."""

from __future__ import annotations

from typing import Any

import pytest

from precision_plan.drift.modules import Modules
from precision_plan.drift.values import Computed, Values
from precision_plan.drift.vllm_parser import EngineFlag, ParserReader
from tests.drift import trees

HEAD = """
from __future__ import annotations
import argparse, json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Optional, Union
from pydantic import Field, SkipValidation
from vllm.config.utils import config
from vllm.config.kinds import Kind, Options
if TYPE_CHECKING:
    from vllm.config.kinds import Late
else:
    Late = Any
"""
KINDS = """
from typing import Literal
from vllm.config.utils import config
Inner = Literal["b", "c"]
Kind = Literal["a", Inner]
class Options(dict):
    pass
@config
class Late:
    x: int = 0
"""


def read(field: str, body: str = "", call: str = "'--x', **kwargs['x']") -> ParserReader:
    """The parser of one configuration class with one field."""
    engine = (
        f"{HEAD}@config\nclass Config:\n    note: ClassVar[int] = 1\n    {field}\n"
        "class AsyncEngineArgs:\n"
        "    @staticmethod\n"
        "    def add_cli_args(parser):\n"
        "        kwargs = get_kwargs(Config)\n"
        "        group = parser.add_argument_group(title='Config')\n"
        + "".join(f"        {line}\n" for line in body.splitlines())
        + f"        group.add_argument({call})\n"
        "        return parser\n"
    )
    files = {"vllm/engine/arg_utils.py": engine, "vllm/config/kinds.py": KINDS}
    modules = Modules(trees.tree(files))
    reader = ParserReader(modules, Values(modules))
    assert reader.read() == "vllm/engine/arg_utils.py", modules.unreadable
    return reader


def flag(field: str, body: str = "", call: str = "'--x', **kwargs['x']") -> EngineFlag:
    (found,) = read(field, body, call).flags
    return found


@pytest.mark.parametrize(
    ("field", "kind", "kind_of", "choices", "default"),
    [
        ("x: int = 3", "value", "int", None, 3),
        ("x: float = Field(0.9, gt=0, le=1)", "value", "float", None, 0.9),
        ("x: float = Field(default=0.9)", "value", "float", None, 0.9),
        ("x: int = Field(gt=0)", "value", "int", None, None),
        ("x: str | None = None", "value", "str", None, None),
        ("x: Optional[int] = None", "value", "int", None, None),
        ("x: bool = False", "boolean", None, None, False),
        ("x: Union[bool, None] = None", "boolean", None, None, None),
        ("x: bool | str | None = None", "value", "str", None, None),
        ("x: Literal['b', 'a'] = 'a'", "value", "str", ("a", "b"), "a"),
        ("x: Literal[8, 16] | None = None", "value", "int", ("8", "16", "None"), None),
        ("x: Kind = 'a'", "value", "str", ("a", "b", "c"), "a"),
        ("x: Kind | str = 'a'", "value", "str", None, "a"),
        ("x: 'Kind' = 'a'", "value", "str", ("a", "b", "c"), "a"),
        ("x: Annotated[Kind, 'words'] = 'a'", "value", "str", ("a", "b", "c"), "a"),
        ("x: SkipValidation[Kind] = 'a'", "value", "str", ("a", "b", "c"), "a"),
        ("x: list[str] = field(default_factory=list)", "list", "str", None, []),
        ("x: list[Kind] | None = None", "list", "str", ("a", "b", "c"), None),
        ("x: tuple[int, int] | None = None", "list", "int", None, None),
        ("x: set[int | str] | None = None", "list", "str", None, None),
        ("x: dict[str, Any] = field(default_factory=dict)", "json", "json", None, {}),
        ("x: Options | None = None", "json", "json", None, None),
        ("x: Config | None = None", "json", "json", None, None),
        ("x: Late | None = None", "value", "str", None, None),  # at run time it is Any
        ("x: Unknown = None", "value", "str", None, None),
    ],
)
def test_annotations(
    field: str, kind: str, kind_of: str | None, choices: Any, default: object
) -> None:
    found = flag(field)
    assert (found.kind, found.flag.choices) == (kind, choices)
    assert found.flag.default == default
    assert kind == "boolean" or found.flag.type == kind_of


def test_a_fixed_tuple_takes_its_length() -> None:
    assert flag("x: tuple[int, int] = (0, 0)").flag.nargs == 2
    assert flag("x: tuple[int, ...] = ()").flag.nargs == "+"


@pytest.mark.parametrize(
    ("body", "call", "kind", "default"),
    [
        ("", "'--x', **{**kwargs['x'], 'default': None}", "value", None),
        ("entry = kwargs['x']\nentry['default'] = 7", "'--x', **entry", "value", 7),
        ("entry = get_kwargs(Config)['x']", "'--x', **entry", "value", 3),
        ("kwargs['x']['type'] = json.loads", "'--x', **kwargs['x']", "json", 3),
        ("kwargs['x']['type'] = optional_type(json.loads)", "'--x', **kwargs['x']", "json", 3),
        ("kwargs['x'].update({'nargs': '+'})", "'--x', **kwargs['x']", "list", 3),
        ("del kwargs['x']['default']", "'--x', **kwargs['x']", "value", None),
        ("if 'default' in kwargs['x']:\n    del kwargs['x']['default']", "'--x'", "value", None),
        ("", "'--x', action='store_true', deprecated=True", "switch", False),
        ("", "'--x', action=argparse.BooleanOptionalAction", "boolean", None),
        ("", "'-x', '--x', type=int, default=2", "value", 2),
    ],
)
def test_what_is_done_to_options(body: str, call: str, kind: str, default: object) -> None:
    found = flag("x: int = 3", body, call)
    assert (found.kind, found.flag.default) == (kind, default)


def test_choices_are_changed_on_the_way() -> None:
    field = "x: Literal['a', 'b'] = 'a'"
    assert flag(field, "kwargs['x']['choices'].remove('b')").flag.choices == ("a",)
    assert flag(field, "kwargs['x']['choices'].append('c')").flag.choices == ("a", "b", "c")
    spoilt = flag(field, "kwargs['x']['choices'] += others()")
    assert isinstance(spoilt.flag.choices, Computed)
    named = flag(field, "NAME = 'b'\nkwargs['x']['choices'].remove(NAME)")
    assert named.flag.choices == ("a",)


def test_one_table_does_not_change_another() -> None:
    body = "get_kwargs(Config)['x']['default'] = 9\nother = get_kwargs(Config)"
    assert flag("x: int = 3", body).flag.default == 3


def test_under_a_condition() -> None:
    call = "'--x', **kwargs['x'])\n        if late():\n            group.add_argument('--y'"
    first, second = read("x: int = 3", call=call).flags
    assert (first.flag.condition, second.flag.condition) == (None, "late()")


@pytest.mark.parametrize("call", ["name()", "f'--{name}'", "'--x', **unknown()"])
def test_what_is_not_understood_is_told(call: str) -> None:
    reader = read("x: int = 3", call=call)
    assert reader.flags == []
    assert [item.source.split(":")[0] for item in reader.unread] == ["vllm/engine/arg_utils.py"]


FRONTEND = """
from vllm.config.utils import config
from vllm.engine.arg_utils import AsyncEngineArgs
@config
class Base:
    port: int = 8000
    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["port"]["default"] = 8001
        return frontend_kwargs
    @classmethod
    def add_cli_args(cls, parser):
        frontend_kwargs = get_kwargs(cls)
        frontend_kwargs = cls._customize_cli_kwargs(frontend_kwargs)
        group = parser.add_argument_group()
        for key, value in frontend_kwargs.items():
            extra = value.pop("flags", [])
            group.add_argument(*extra, f"--{key.replace('_', '-')}", **value)
        return parser
@config
class Frontend(Base):
    allowed_origins: list[str] = None
    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
        frontend_kwargs["allowed_origins"]["type"] = json.loads
        del frontend_kwargs["allowed_origins"]["nargs"]
        frontend_kwargs["allowed_origins"]["flags"] = ["-o"]
        return frontend_kwargs
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser = Frontend.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
"""
ENGINE = """
class AsyncEngineArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--dtype")
        return parser
"""


@pytest.mark.parametrize("folder", ["openai", "common"])
def test_flags_of_a_whole_class(folder: str) -> None:
    path = f"vllm/entrypoints/{folder}/cli_args.py"
    modules = Modules(trees.tree({path: FRONTEND, "vllm/engine/arg_utils.py": ENGINE}))
    reader = ParserReader(modules, Values(modules))
    assert reader.read() == path
    found = {item.flag.flags: (item.kind, item.flag.default) for item in reader.flags}
    assert found == {
        ("--port",): ("value", 8001),
        ("--allowed-origins", "-o"): ("json", None),
        ("--dtype",): ("value", None),
    }
    assert reader.unread == []


def test_a_parser_that_calls_itself_ends() -> None:
    loop = "def make_arg_parser(parser):\n    parser = make_arg_parser(parser)\n"
    modules = Modules(trees.tree({"vllm/entrypoints/openai/cli_args.py": loop}))
    reader = ParserReader(modules, Values(modules))
    assert reader.read() is not None
    assert reader.flags == []
