"""Tell why a plan field, a flag or a variable has its value in one recipe or script.

Who set it and where, whom it overrides, what a program takes where nobody sets it, what it
lowers to, and which findings rest on it.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from precision_plan.cli._arguments import (
    Parser,
    UsageError,
    add_conf_options,
    add_output_options,
    add_profile_option,
)
from precision_plan.cli._output import emit, use_color, width

_WHERE_NAMES_ARE = "fields: precision-plan schema; flags and variables: precision-plan explain"
_OWN = ("--format", "--color", "--output", "--profile", "--conf-dir", "--search-path", "--help")


def configure(parser: Parser) -> None:
    """Options of the verb."""
    from precision_plan.render.why import WHY_FORMATS

    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="name in conf/recipes, YAML file, or launch script (run.sh#2: its second way)",
    )
    parser.add_argument(
        "subject",
        metavar="FIELD",
        help="training.fp8_recipe, fp8_recipe, a section, --fp8-recipe or NVTE_...",
    )
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="as Hydra reads them: section.key=value"
    )
    add_output_options(parser, WHY_FORMATS)
    add_profile_option(parser)
    add_conf_options(parser)


def prepare(argv: list[str]) -> list[str]:
    """A flag to ask about looks like an option of this program: a space keeps it apart."""
    return [
        f" {word}" if word.startswith("--") and word != "--" and not _own(word) else word
        for word in argv
    ]


def _own(word: str) -> bool:
    return word.partition("=")[0] in _OWN


def run(args: Namespace) -> int:
    """Print the answer; 0, or 2 if nothing of the name is known or the recipe cannot be read."""
    from precision_plan.api import why
    from precision_plan.plan.names import UnknownName
    from precision_plan.render.why import render_why

    try:
        answer = why(
            args.recipe,
            args.subject,
            args.overrides,
            conf_dir=args.conf_dir,
            search_paths=args.search_path,
            profile=args.profile,
        )
    except UnknownName as error:
        hint = f"did you mean {error.near}?" if error.near else _WHERE_NAMES_ARE
        raise UsageError(str(error), hint) from None
    color = args.output is None and use_color(args.color, sys.stdout)
    emit(render_why(answer, args.format, width=width(sys.stdout), color=color), args.output)
    return 2 if answer.diagnostics else 0
