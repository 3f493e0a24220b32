"""Check recipes, folders of them and checkpoint folders, without planning a launch."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from precision_plan.cli._arguments import (
    Parser,
    UsageError,
    add_conf_options,
    add_output_options,
    add_profile_option,
    add_target_option,
    closest,
)
from precision_plan.cli._fixing import (
    add_fix_options,
    apply_fixes,
    check_fix_options,
    show_diff,
)
from precision_plan.cli._locking import add_lock_option, check_lock_option, locked_report
from precision_plan.cli._output import emit, use_color, width
from precision_plan.render import LINT_FORMATS

if TYPE_CHECKING:
    from precision_plan.plan.compiled import LintReport
    from precision_plan.render._run import Run


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="recipe files, checkpoint folders, or folders of them (read recursively)",
    )
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        help="batch: one JSON object {id, framework, versions, gpu, env, argv} a line ('-': stdin)",
    )
    add_output_options(parser, LINT_FORMATS)
    add_profile_option(parser)
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "advice"),
        default="error",
        help="least severity for exit code 1 (default: error)",
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="findings to pass over: those that --update-baseline recorded in FILE",
    )
    parser.add_argument(
        "--update-baseline",
        action="store_true",
        help="record today's findings in the FILE of --baseline, and pass over them",
    )
    add_target_option(parser)
    add_fix_options(parser)
    add_lock_option(parser)
    parser.add_argument(
        "--skip-others",
        action="store_true",
        help="pass over named files that are no recipes, as over those in a folder (for hooks)",
    )
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Print the findings; 0 clean, 1 findings of ``--fail-on`` or worse, 2 broken input."""
    check_fix_options(args)
    check_lock_option(args)
    if args.jsonl is not None:
        return _batch(args)
    if not args.paths:
        raise UsageError("required: PATH, or --jsonl FILE", "precision-plan lint --help")
    if args.update_baseline and args.baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE", "FILE is written")
    from precision_plan.plan.compiled import exit_code
    from precision_plan.render import render_lint

    fixes = apply_fixes(args) if args.fix else None
    report = _linted(args) if args.lock is None else locked_report(args)
    if fixes is not None:
        report = replace(report, fixes=fixes)
    run = _run(args)
    if args.baseline is not None:
        from precision_plan.cli._baseline import against, update

        apply = update if args.update_baseline else against
        report = apply(report, args.baseline, args.paths, args.profile, run)
    if args.dry_run and args.format == "text":
        show_diff(report, args.output)
        return exit_code(report.diagnostics, args.fail_on)
    color = args.output is None and use_color(args.color, sys.stdout)
    text = render_lint(report, args.format, width=width(sys.stdout), color=color, run=run)
    emit(text, args.output)
    if args.update_baseline and report.baseline is None:
        sys.stderr.write(_not_written(args.baseline))
    return exit_code(report.diagnostics, args.fail_on)


def _linted(args: Namespace) -> LintReport:
    from precision_plan.api import lint

    return lint(
        args.paths,
        profile=args.profile,
        target=target_of(args.target),
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        skip_others=args.skip_others,
    )


def _not_written(baseline: str) -> str:
    return (
        f"precision-plan: the baseline {baseline} is not written: "
        "some input cannot be read, so that its findings are not known\n"
    )


def _run(args: Namespace) -> Run:
    """What the formats for CI may know of this run."""
    from precision_plan.cli._repository import folders
    from precision_plan.render._run import Run

    here, root = folders()
    if args.format != "sarif":
        return Run(here, root, args.fail_on)
    from precision_plan.cli._pages import pages

    return Run(here, root, args.fail_on, {page.id: page for page in pages()})


def _batch(args: Namespace) -> int:
    """One answer a line; the exit code is the worst of the lines'."""
    from precision_plan.batch import lint_lines

    if args.paths:
        raise UsageError("--jsonl and PATH exclude each other", "lint the files in a second call")
    if args.baseline is not None or args.update_baseline:
        raise UsageError("--jsonl and --baseline exclude each other", "a line has no file")
    code = 0
    try:
        with _lines(args.jsonl) as lines:
            for answer, found in lint_lines(lines):
                print(answer)
                code = max(code, found)
    except BrokenPipeError:
        raise
    except OSError as error:
        what = f"--jsonl {args.jsonl}: {error.strerror}"
        raise UsageError(what, "FILE is read line by line") from error
    except UnicodeDecodeError:
        raise UsageError(f"--jsonl {args.jsonl}: not UTF-8", "one JSON object a line") from None
    return code


def _lines(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdin)
    return Path(name).open(encoding="utf-8")


def target_of(words: list[str]) -> dict[str, str]:
    """``["gpu=b200"]`` as a mapping.

    Raises:
        UsageError: if a word is no ``key=value``, or its key or value is not known.
    """
    from precision_plan.plan.given_target import TARGET_KEYS, check_target

    target: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise UsageError(
                f"--target {word}: not KEY=VALUE",
                "for example --target gpu=b200; paths stand before --target",
            )
        if key not in TARGET_KEYS:
            found = closest(key, TARGET_KEYS)
            known = "known keys: " + ", ".join(TARGET_KEYS)
            raise UsageError(
                f"--target {word}: there is no key {key!r}",
                f"did you mean {found!r}? {known}" if found else known,
            )
        try:
            check_target({key: value})
        except ValueError as error:
            raise UsageError(f"--{error}") from error
        target[key] = value
    return target
