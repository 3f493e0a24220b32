"""Look at what a recipe names on this machine, before a launch: so far at its checkpoint.

GPUs, installed packages and a Ray cluster are not looked at and are listed as unknown.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from precision_plan.cli._arguments import (
    Parser,
    add_conf_options,
    add_output_options,
    add_profile_option,
)
from precision_plan.cli._output import emit, use_color, width
from precision_plan.render import PREFLIGHT_FORMATS


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument("recipe", metavar="RECIPE", help="name in conf/recipes, or a YAML file")
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="as Hydra reads them: section.key=value"
    )
    add_output_options(parser, PREFLIGHT_FORMATS)
    add_profile_option(parser)
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Print what was seen; 0 clean, 1 errors that rest on it, 2 broken input."""
    from precision_plan.api import preflight
    from precision_plan.plan.compiled import exit_code
    from precision_plan.render import render_preflight

    report = preflight(
        args.recipe,
        args.overrides,
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        profile=args.profile,
    )
    color = args.output is None and use_color(args.color, sys.stdout)
    text = render_preflight(report, args.format, width=width(sys.stdout), color=color)
    emit(text, args.output)
    return exit_code(report.diagnostics)
