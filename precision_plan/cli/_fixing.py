"""``lint --fix``: what to fix, writing the files, and the diff of a dry run."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from precision_plan.cli._arguments import Parser, UsageError
from precision_plan.cli._output import emit, replace_file, width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from precision_plan.plan.compiled import LintReport
    from precision_plan.plan.fixes import FileChange, Fixes


def add_fix_options(parser: Parser) -> None:
    """``--fix`` and ``--dry-run``."""
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply safe fixes to the recipes and group files below PATH; comments, order, quotes "
        "and line endings are kept; what they make of scripts is shown as a diff",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --fix: print the changes as a unified diff and write nothing",
    )


def check_fix_options(args: Namespace) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: if they do not.
    """
    if args.dry_run and not args.fix:
        raise UsageError("--dry-run belongs to --fix", "lint without --fix changes nothing")
    if args.fix and args.jsonl is not None:
        raise UsageError("--fix changes files, and --jsonl has none", "name recipes instead")
    if args.dry_run and args.update_baseline:
        raise UsageError("--dry-run writes nothing, and --update-baseline does", "choose one")
    if args.dry_run and args.format not in ("text", "json"):
        raise UsageError(
            f"--dry-run prints a diff, and --format {args.format} has no place for one",
            "--format text or json",
        )


def apply_fixes(args: Namespace) -> Fixes:
    """Fix the files below the paths of ``args``; of a dry run, only say how.

    Raises:
        UsageError: if a file cannot be written; then none has been.
    """
    from dataclasses import replace

    from precision_plan.api.fixing import fix

    fixes = fix(
        args.paths,
        profile=args.profile,
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        skip_others=args.skip_others,
    )
    if args.dry_run:
        return fixes
    _check_writable(fixes.changes)
    for change in fixes.changes:
        try:
            replace_file(change.path, change.after)
        except OSError as error:
            raise UsageError(f"cannot fix {change.name}: {error.strerror}") from error
    return replace(fixes, written=True)


def _check_writable(changes: Iterable[FileChange]) -> None:
    hint = "make it writable, or see what would change: --fix --dry-run"
    for change in changes:
        try:
            mode, now = change.path.stat().st_mode, change.path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot fix {change.name}: {error.strerror}") from error
        # Renaming over it would get past the mark that says that nobody is to write it.
        if not mode & 0o222 or not os.access(change.path, os.W_OK):
            raise UsageError(f"cannot fix {change.name}: the file is read-only", hint)
        if not os.access(change.path.parent, os.W_OK):
            raise UsageError(f"cannot fix {change.name}: its folder is read-only", hint)
        if now != change.before.encode("utf-8"):
            raise UsageError(f"{change.name} has changed meanwhile", "run it again")


def show_diff(report: LintReport, destination: str | None) -> None:
    """Print the diff alone, for ``patch``; the summary goes to stderr."""
    from precision_plan.render._fixes import fix_diff, fix_summary, left_lines
    from precision_plan.render._layout import Style, printable

    fixes = report.fixes
    if fixes is None:
        return
    text = fix_diff(fixes)
    if destination is None and sys.stdout.isatty():
        text = "".join(f"{printable(line)}\n" for line in text.split("\n")[:-1])
    emit(text, destination)
    left = left_lines(fixes, width(sys.stderr), Style(False))
    sys.stderr.write("\n".join([*left, fix_summary(fixes, len(report.diagnostics)), ""]))
