"""``add_argument`` calls mean what the real :mod:`argparse` makes of them."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.drift.argparse_rules import ENUM_NAME, Flag, argument
from precision_plan.drift.values import Computed
from tests.drift import trees

PATH = "package/arguments.py"
HEADER = """
import argparse
import enum
import functools
class Backend(enum.Enum):
    FLASH = 1
    FUSED = 2
class Plain:
    pass
COUNT = 4
def converter(text):
    return text
"""
ACTIONS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_StoreFalseAction": "store_false",
    "_AppendAction": "append",
    "BooleanOptionalAction": "boolean_optional",
}


def flag_of(arguments: str) -> Flag | None:
    values, scope = trees.values_of({PATH: HEADER}, PATH)
    call = ast.parse(f"group.add_argument({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    return argument(call, scope, values)


_WORDS = st.from_regex(r"[a-z][a-z0-9]{0,6}(?:[-_][a-z0-9]{1,5}){0,2}", fullmatch=True)
_LONG = _WORDS.map("--{}".format).filter(lambda name: not name.startswith("--no-"))
_SHORT = st.sampled_from("abcdefg").map("-{}".format)
_NAMES = st.lists(_LONG | _SHORT, min_size=1, max_size=3, unique=True)
_STORED: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["int", "str", "float"]),
        "default": st.sampled_from(["None", "1", "'x'", "[]", "1.5", "2 ** 4", "COUNT"]),
        "nargs": st.sampled_from(["'+'", "'*'", "'?'", "2"]),
        "choices": st.sampled_from(["['a', 'b']", "(1, 2)", "range(3)"]),
        "required": st.sampled_from(["True", "False"]),
    },
)
_SWITCHES = st.fixed_dictionaries(
    {
        "action": st.sampled_from(
            ["'store_true'", "'store_false'", "argparse.BooleanOptionalAction"]
        )
    },
    optional={"default": st.sampled_from(["None", "True", "False"])},
)
_APPENDED = st.just({"action": "'append'"})
_DEST = st.fixed_dictionaries(
    {}, optional={"dest": _WORDS.map(lambda w: repr(w.replace("-", "_")))}
)


@given(_NAMES, _STORED | _SWITCHES | _APPENDED, _DEST)
def test_as_argparse(names: list[str], options: dict[str, str], dest: dict[str, str]) -> None:
    texts = [repr(name) for name in names]
    texts += [f"{key}={text}" for key, text in {**options, **dest}.items()]
    arguments = ", ".join(texts)
    namespace: dict[str, Any] = {}
    exec(HEADER, namespace)
    action = eval(f"argparse.ArgumentParser().add_argument({arguments})", namespace)

    flag = flag_of(arguments)

    assert flag is not None
    assert set(flag.flags) == set(action.option_strings)
    assert flag.dest == action.dest
    assert flag.action == ACTIONS[type(action).__name__]
    assert flag.default == action.default
    assert flag.required == action.required
    assert flag.type == (action.type.__name__ if action.type else None)
    expected = None if action.choices is None else tuple(map(str, action.choices))
    assert flag.choices == expected
    if flag.action == "store":
        assert flag.nargs == action.nargs


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("type=converter", "converter"),
        ("type=argparse.FileType", "FileType"),
        ("type=lambda text: Backend[text]", ENUM_NAME),
        ("type=lambda text: Backend[text] if text != 'all' else text", ENUM_NAME),
        ("type=lambda text: Plain[text]", "lambda"),
        ("type=lambda text: text.split(',')", "lambda"),
        ("", None),
    ],
)
def test_type(arguments: str, expected: str | None) -> None:
    flag = flag_of(f"'--name', {arguments}")
    assert flag is not None
    assert flag.type == expected


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ("list(Backend)", ("FLASH", "FUSED")),
        ("Backend", ("FLASH", "FUSED")),
        ("[member.name for member in Backend]", ("FLASH", "FUSED")),
        ("[member.value for member in Backend]", ("1", "2")),
        ("known_backends()", Computed("known_backends()")),
    ],
)
def test_choices(choices: str, expected: object) -> None:
    flag = flag_of(f"'--name', choices={choices}, default=Backend.FLASH")
    assert flag is not None
    assert flag.choices == expected
    assert flag.default == "FLASH"


def test_a_default_that_is_made_at_run_time() -> None:
    flag = flag_of("'--name', default=functools.partial(print)")
    assert flag is not None
    assert flag.default == Computed("functools.partial(print)")
    assert str(flag.default) == "computed: functools.partial(print)"


@pytest.mark.parametrize(
    "arguments",
    ["name", "*names", "f'--{name}'", "'--name', **options", "'--name', action=chosen()"],
)
def test_what_is_built_at_run_time_is_not_guessed(arguments: str) -> None:
    flag = flag_of(arguments)
    assert flag is None or flag.action == "chosen()"


def test_a_positional_argument_is_no_flag() -> None:
    flag = flag_of("'path', type=str")
    assert flag is not None
    assert flag.flags == ()
