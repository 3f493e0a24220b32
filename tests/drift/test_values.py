"""Expressions are worked out as Python would, or not at all."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.drift.values import Computed, EnumMember, plain
from tests.drift import trees

PATH = "package/module.py"
FILES = {
    PATH: """
        import enum
        import os
        import os as system
        from os import environ, getenv
        from enum import IntEnum
        from package.constants import LIMIT, Imported, Imported as Renamed
        from package import constants
        from outside import THING
        from .relative import *

        NAMES = ("a", "b")
        TABLE = {"x": 1, "y": 2}
        FLAG = not True

        class Color(enum.Enum):
            RED = 1
            GREEN = 2
            _ignored = 3

        class Level(IntEnum):
            LOW = 0

        class Child(Color):
            pass

        class NoEnum:
            RED = 1

        try:
            import fast
            HAVE = True
        except ImportError:
            HAVE = False

        LOOP = LOOP2
        LOOP2 = LOOP
    """,
    "package/__init__.py": "from package.constants import LIMIT as TOP\n",
    "package/constants.py": """
        import enum
        LIMIT = 2 ** 32
        class Imported(enum.Enum):
            A = "a"
            B = "b"
    """,
    "package/relative.py": "STARRED = 7\n",
}


def value(text: str) -> Any:
    values, scope = trees.values_of(FILES, PATH)
    return values.of(ast.parse(text, mode="eval").body, scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LIMIT", 2**32),
        ("constants.LIMIT", 2**32),
        ("STARRED + 1", 8),
        ("HAVE", True),
        ("FLAG", False),
        ("NAMES + ('c',)", ("a", "b", "c")),
        ("[*NAMES, 'c']", ["a", "b", "c"]),
        ("{**TABLE, 'z': 3}", {"x": 1, "y": 2, "z": 3}),
        ("TABLE['y']", 2),
        ("list(TABLE.keys())", ["x", "y"]),
        ("[e.name for e in Color]", ["RED", "GREEN"]),
        ("[e.value for e in Imported]", ["a", "b"]),
        ("[e.name for e in Renamed if e.value == 'b']", ["B"]),
        ("Color.RED", EnumMember("Color", "RED", 1)),
        ("Color.GREEN.value", 2),
        ("Level.LOW.name", "LOW"),
        ("list(range(3))", [0, 1, 2]),
        ("int('7') if HAVE else 0", 7),
        ("'e4m3'.upper()", "E4M3"),
        ("f'{NAMES[0]}-{LIMIT}'", "a-4294967296"),
        ("float('inf')", float("inf")),
        ("os.getenv('ANY', '0') == '1'", False),
        ("system.environ.get('ANY')", None),
        ("getenv('ANY', 'x')", "x"),
        ("environ.get('ANY', 'y').upper()", "Y"),
        ("1 if 'a' in NAMES and not FLAG else 2", 1),
    ],
)
def test_known(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "THING",
        "absent",
        "NoEnum.RED",
        "Color.BLUE",
        "LOOP",
        "open('/etc/passwd').read()",
        "__import__('os').getpid()",
        "eval('1')",
        "9 ** 9 ** 9",
        "1 << 100000",
        "'a' * 10 ** 9",
        "list(range(10 ** 12))",
        "1 / 0",
        "TABLE['absent']",
        "os.environ['ANY']",
        "[x for x in NAMES for y in NAMES]",
        "(lambda: 1)()",
        "int('no number')",
    ],
)
def test_computed(text: str) -> None:
    found = value(text)
    assert isinstance(found, Computed)
    assert found.text == ast.unparse(ast.parse(text, mode="eval"))


def test_plain() -> None:
    member = EnumMember("Color", "RED", 1)
    assert plain({"a": (member, 1), "b": {2, 1}}) == {"a": ["RED", 1], "b": [1, 2]}


_LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_LITERALS)
def test_literals(literal: object) -> None:
    assert value(repr(literal)) == literal
