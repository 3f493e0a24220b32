"""Tell what differs between two plans: fields with their positions, and what they lower to.

A side is a recipe, a launch script or a lock file; overrides stand behind the recipe that they
belong to. Titles and other words about a recipe are listed apart: they change nothing that runs.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.cli._arguments import (
    Parser,
    UsageError,
    add_conf_options,
    add_output_options,
    add_profile_option,
)
from precision_plan.cli._output import emit, use_color, width

if TYPE_CHECKING:
    from precision_plan.api import Side


def configure(parser: Parser) -> None:
    """Options of the verb."""
    from precision_plan.render.comparison import DIFF_FORMATS

    parser.add_argument(
        "sides",
        metavar="SIDE [OVERRIDE ...]",
        nargs="*",
        help="two of: recipe name, YAML file, launch script (run.sh#2: its second way), lock file",
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if a field or an effect differs"
    )
    add_output_options(parser, DIFF_FORMATS)
    add_profile_option(parser)
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Print the differences; 0, or 1 with ``--exit-code`` if there are any, 2 broken input."""
    from precision_plan.api import diff
    from precision_plan.render.comparison import render_diff

    a, b = _sides(args.sides)
    found = diff(a, b, conf_dir=args.conf_dir, search_paths=args.search_path, profile=args.profile)
    color = args.output is None and use_color(args.color, sys.stdout)
    emit(render_diff(found, args.format, width=width(sys.stdout), color=color), args.output)
    if found.broken:
        return 2
    return int(args.exit_code and found.differs)


def _sides(words: list[str]) -> tuple[Side, Side]:
    """``[A, key=value, B]`` as two sides.

    Raises:
        UsageError: if there are not two, or an override stands before the first.
    """
    from precision_plan.api import Side

    sides: list[tuple[str, list[str]]] = []
    for word in words:
        if not _is_override(word):
            sides.append((word, []))
        elif sides:
            sides[-1][1].append(word)
        else:
            raise UsageError(f"{word!r} stands before a recipe", "an override follows its recipe")
    if len(sides) != 2:
        raise UsageError(
            f"two sides are compared, {len(sides)} given",
            "precision-plan diff RECIPE [OVERRIDE ...] RECIPE_OR_LOCK [OVERRIDE ...]",
        )
    a, b = (Side(name, tuple(texts)) for name, texts in sides)
    return a, b


def _is_override(word: str) -> bool:
    if not word.startswith(("+", "~")) and "=" not in word:
        return False
    try:
        return not Path(word).exists()
    except (OSError, ValueError):
        return True
