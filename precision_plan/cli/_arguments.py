"""Argument parsing shared by the verbs: one-line errors with a hint, and the common options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NoReturn


class UsageError(Exception):
    """A mistake on the command line: one line, and a hint on how to go on."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Parser(argparse.ArgumentParser):
    """An argument parser that raises :class:`UsageError` instead of printing its usage."""

    def __init__(self, *, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise :class:`UsageError`, with the closest option if one was misspelt."""
        label, _, rest = message.partition("unrecognized arguments: ")
        if rest and not label:
            wrong = rest.split()[0]
            found = closest(wrong.partition("=")[0], self._option_string_actions)
            hint = f"did you mean {found}?" if found else None
            raise UsageError(f"unknown argument {wrong!r}", hint)
        raise UsageError(message)


def closest(text: str, known: Iterable[str]) -> str | None:
    """The known text most like ``text``, or ``None`` if none is close."""
    import difflib

    found = difflib.get_close_matches(text, tuple(known), n=1, cutoff=0.6)
    return found[0] if found else None


def add_conf_options(parser: Parser) -> None:
    """Where recipes and groups are looked for."""
    parser.add_argument(
        "--conf-dir",
        metavar="DIR",
        help="configuration folder to use (default: ./conf, else the one of the package)",
    )
    parser.add_argument(
        "--search-path",
        metavar="DIR",
        action="append",
        default=[],
        help="one more folder with groups and recipes; may be repeated",
    )


def add_profile_option(parser: Parser) -> None:
    """How strict to be."""
    from precision_plan.rules.profiles import PROFILES

    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default="ci",
        help="explore: errors only; ci: everything; production: advice becomes a warning",
    )


def add_target_option(parser: Parser) -> None:
    """What the file does not declare."""
    parser.add_argument(
        "--target",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="what is not declared: gpu=b200 framework=vime vllm=0.33.0 tensor_parallel_size=8 ...",
    )


def add_output_options(parser: Parser, formats: tuple[str, ...]) -> None:
    """Format, colour and destination of what is printed."""
    parser.add_argument("--format", choices=formats, default="text", help="default: text")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set (default)",
    )
    add_destination(parser)


def add_destination(parser: Parser) -> None:
    """``-o FILE``."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write here instead of printing; the file is replaced in one step",
    )
