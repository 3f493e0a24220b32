"""Turn a launch script into a recipe. Nothing of the script is run.

The recipe holds what one launch of the script sets, each value with its line. What is not known
before the launch, and what was not understood, is listed in it.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.cli._arguments import Parser, UsageError, add_conf_options, add_target_option
from precision_plan.cli._output import emit, use_color, width

if TYPE_CHECKING:
    from precision_plan.plan.imported import Imported

FORMATS = ("yaml", "json")


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument("script", metavar="SCRIPT", help="a launch script")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the recipe here, and print what is open"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--format", choices=FORMATS, default="yaml", help="default: yaml")
    add_target_option(parser)
    parser.add_argument(
        "--launch",
        metavar="N",
        type=int,
        help="which launch of the script, from 1 (default: the first)",
    )
    parser.add_argument(
        "--branch",
        metavar="TEXT",
        action="append",
        default=[],
        help="take the way where this condition holds ('not: TEXT': does not hold); may be repeated"
        " (default: the first way)",
    )
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Write the recipe; 0 if it is written, whatever is left over; 2 if there is no launch."""
    from precision_plan.api import import_script
    from precision_plan.cli.lint import target_of

    destination = args.output if args.output != "-" else None
    if destination is not None and not args.force and Path(destination).exists():
        raise UsageError(f"{destination} exists", "--force replaces it")
    try:
        imported = import_script(
            args.script,
            target=target_of(args.target),
            launch=args.launch,
            branches=args.branch,
            conf_dir=args.conf_dir,
            search_paths=args.search_path,
        )
    except ValueError as error:
        raise UsageError(str(error), f"precision-plan import {args.script} lists them") from error
    if imported.plan is None:
        return _nothing(imported)
    if args.format == "json":
        from precision_plan.render.imported import as_json

        emit(as_json(imported), destination)
    else:
        emit(imported.text, destination)
    if destination is not None:
        from precision_plan.render.imported import report

        emit(f"{report(imported, width(sys.stdout))}written to {destination}\n")
    return 0


def _nothing(imported: Imported) -> int:
    """Say why there is no recipe."""
    if imported.diagnostics:
        from precision_plan.plan.compiled import LintReport
        from precision_plan.render import render_lint

        report = LintReport(imported.diagnostics, (), 0, {}, 0.0)
        color = use_color("auto", sys.stderr)
        sys.stderr.write(render_lint(report, "text", width=width(sys.stderr), color=color))
    else:
        sys.stderr.write(
            f"precision-plan: {imported.script} starts nothing that is known here\n"
            "  hint: a launch runs Megatron-LM, MegaDLM, vime, slime, miles or vllm serve; a"
            " training program of another name is known by --target framework=NAME\n"
        )
    return 2
