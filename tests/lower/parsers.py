"""argparse parsers built from the facts, to read back what lowering writes."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from precision_plan.facts.frameworks import framework_flags
from precision_plan.facts.megatron import MegatronFlag

_TYPES: dict[str | None, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "moe_freq_type": lambda text: ast.literal_eval(text) if "[" in text else int(text),
}


class Refused(Exception):
    """The parser's message, instead of an exit."""


class Parser(argparse.ArgumentParser):
    """A strict parser without abbreviations that raises."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def megatron_parser(flags: Iterable[MegatronFlag], *, checked: bool = True) -> Parser:
    """The flags with their actions and defaults; with ``checked`` also types and choices."""
    parser = Parser()
    for flag in flags:
        keywords: dict[str, Any] = {"dest": flag.dest, "default": flag.default}
        if flag.action == "store":
            keywords["nargs"] = flag.nargs
            if checked:
                keywords["type"] = _TYPES.get(flag.type, str)
                keywords["choices"] = flag.choices
        parser.add_argument(*flag.flags, action=flag.action, **keywords)
    return parser


def add_framework(parser: Parser, framework: str) -> None:
    """Register the framework's own arguments that a plan field holds."""
    for flag in framework_flags(framework).values():
        dest = flag.field
        if flag.action == "boolean":
            parser.add_argument(*flag.flags, dest=dest, action=argparse.BooleanOptionalAction)
        elif flag.action == "store_true":
            parser.add_argument(*flag.flags, dest=dest, action="store_true")
        else:
            kind = _TYPES.get(flag.type, str)
            parser.add_argument(
                *flag.flags, dest=dest, type=kind, choices=flag.choices, nargs=flag.nargs
            )
    parser.add_argument("--train-env-vars")
