"""``lint --lock``: one recipe against the lock file that was written for it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from precision_plan.cli._arguments import Parser, UsageError

if TYPE_CHECKING:
    from precision_plan.plan.compiled import LintReport


def add_lock_option(parser: Parser) -> None:
    """``--lock FILE``."""
    parser.add_argument(
        "--lock",
        metavar="FILE",
        help="check that the plan of the recipe PATH is still the one of this lock file, and what "
        "a resumed run loses if it is not",
    )


def check_lock_option(args: Namespace) -> None:
    """Refuse what does not go with a lock.

    Raises:
        UsageError: if there is such a thing.
    """
    if args.lock is None:
        return
    for option, given in (("--jsonl", args.jsonl), ("--target", args.target), ("--fix", args.fix)):
        if given:
            raise UsageError(
                f"--lock and {option} exclude each other", "a lock is that of one recipe as it is"
            )
    if len(args.paths) != 1:
        raise UsageError(
            f"--lock is compared with one recipe, {len(args.paths)} given",
            "its overrides stand in the lock: precision-plan lint RECIPE --lock FILE",
        )


def locked_report(args: Namespace) -> LintReport:
    """The findings of the recipe, and what differs from its lock."""
    from precision_plan.api import lint_lock

    return lint_lock(
        args.paths[0],
        args.lock,
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        profile=args.profile,
    )
