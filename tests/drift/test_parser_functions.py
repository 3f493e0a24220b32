"""Parsers that are built by several functions."""

from __future__ import annotations

from precision_plan.drift.argparse_rules import Flag
from precision_plan.drift.dataclass_fields import FieldReader
from precision_plan.drift.modules import Found
from precision_plan.drift.parser_functions import FlagReader
from tests.drift import trees

FILES = {
    "package/__init__.py": "",
    "package/arguments.py": """
        import argparse
        from package import more
        from package.more import add_more_args
        from package.factory import ArgumentGroupFactory

        def add_arguments(parser):
            parser = _add_first(parser)
            parser = add_more_args(parser)
            more.add_yet_more(parser)
            parser = _add_first(parser)
            unrelated(1)
            return parser

        def _add_first(parser):
            group = parser.add_argument_group(title="first")
            group.add_argument("--alpha", type=int, default=1), group.add_argument("--beta")
            exclusive = group.add_mutually_exclusive_group()
            exclusive.add_argument("--gamma", action="store_true")
            if HAVE_EXTRA:
                group.add_argument("--extra")
            else:
                group.add_argument("--plain")
            try:
                import fast
                group.add_argument("--fast")
            except ImportError:
                group.add_argument("--slow")
            for name in ("x", "y"):
                group.add_argument(f"--{name}")
            def inner():
                group.add_argument("--never")
            return parser

        def not_called(parser):
            parser.add_argument("--unseen")
    """,
    "package/more.py": """
        from package.config import Config
        from package.factory import ArgumentGroupFactory

        def add_more_args(parser):
            exclude = ["left_out"]
            factory = ArgumentGroupFactory(Config, exclude=exclude)
            group = factory.build_group(parser, "more")
            group.add_argument("--delta")
            ArgumentGroupFactory(Other).build_group(parser)
            return parser

        def add_yet_more(parser):
            ArgumentGroupFactory(Config, exclude=chosen()).build_group(parser, "again")
            Builder(Config).build_group(parser)
    """,
    "package/config.py": """
        from dataclasses import dataclass, field
        @dataclass
        class Config:
            size: int = 1
            left_out: int = 2
            derived: int = field(default=3, init=False)
            hook: object | int = None
    """,
}


def read() -> FlagReader:
    values, scope = trees.values_of(FILES, "package/arguments.py")
    reader = FlagReader(values.modules, values, FieldReader(values.modules, values))
    found = values.modules.find("add_arguments", scope)
    assert isinstance(found, Found)
    reader.read(found)
    return reader


def names(flags: list[Flag]) -> list[str]:
    return [flag.flags[0] for flag in flags]


def test_functions_are_followed_once_and_in_order() -> None:
    found = names(read().flags)
    assert found == [
        *("--alpha", "--beta", "--gamma", "--extra", "--plain", "--fast", "--slow"),
        *("--size", "--delta", "--size", "--left-out"),
    ]


def test_conditions_are_kept() -> None:
    conditions = {flag.flags[0]: flag.condition for flag in read().flags if flag.condition}
    assert conditions == {
        "--extra": "HAVE_EXTRA",
        "--plain": "not (HAVE_EXTRA)",
        "--slow": "an exception",
    }


def test_generated_flags_cite_the_dataclass() -> None:
    (first, _) = [flag for flag in read().flags if flag.flags == ("--size",)]
    assert first.source == "package/config.py:5"
    assert (first.type, first.default) == ("int", 1)


def test_what_cannot_be_read_is_named() -> None:
    unread = [(item.source, item.text) for item in read().unread]
    assert unread == [
        ("package/arguments.py:30", "group.add_argument(f'--{name}')"),
        ("package/config.py:8", "Config.hook"),
        ("package/more.py:10", "ArgumentGroupFactory(Other)"),
        ("package/more.py:14", "exclude=chosen()"),
        ("package/config.py:8", "Config.hook"),
        ("package/more.py:15", "Builder(Config)"),
    ]
