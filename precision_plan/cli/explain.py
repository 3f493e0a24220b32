"""Explain a rule, a command-line flag, a plan field or an environment variable."""

from __future__ import annotations

import sys
from argparse import Namespace

from precision_plan.cli._arguments import Parser, UsageError, closest
from precision_plan.cli._output import emit, use_color, width


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "subject",
        metavar="SUBJECT",
        help="PP204, mxfp8-needs-sm100, --fp8-format, training.fp8_format or NVTE_...",
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def prepare(argv: list[str]) -> list[str]:
    """A flag to explain looks like an option of this program: its dashes are taken off."""
    own = ("--color", "--help")
    return [
        word.lstrip("-") if word.startswith("--") and not word.startswith(own) else word
        for word in argv
    ]


def run(args: Namespace) -> int:
    """Print what is known of the subject; 2 if nothing is."""
    from precision_plan.cli._knowledge import cards, known_names
    from precision_plan.cli._pages import pages
    from precision_plan.render._pages import card_text, page_text

    subject = args.subject.strip()
    columns, color = width(sys.stdout), use_color(args.color, sys.stdout)
    every = pages()
    for page in every:
        if subject.lower() in (page.id.lower(), page.slug):
            emit(page_text(page, width=columns, color=color))
            return 0
    found = cards(subject, every)
    if not found:
        names = [name for page in every for name in (page.id, page.slug)]
        near = closest(subject, [*names, *known_names()])
        raise UsageError(
            f"nothing is known of {subject!r}",
            f"did you mean {near}?" if near else "precision-plan rules lists the rules",
        )
    emit("\n".join(card_text(card, width=columns, color=color) for card in found))
    return 0
