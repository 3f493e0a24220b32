"""Compile one recipe and print what would be launched; nothing is started."""

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
from precision_plan.render import PLAN_FORMATS


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument("recipe", metavar="RECIPE", help="name in conf/recipes, or a YAML file")
    parser.add_argument(
        "overrides",
        metavar="OVERRIDE",
        nargs="*",
        help="as Hydra reads them: training.fp8_recipe=mxfp8 hardware=b200 +key=value ~key",
    )
    add_output_options(parser, PLAN_FORMATS)
    add_profile_option(parser)
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Print the plan; 0 clean, 1 errors, 2 broken input."""
    from precision_plan.api import compile
    from precision_plan.render import render_plan

    compiled = compile(
        args.recipe,
        args.overrides,
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        profile=args.profile,
    )
    color = args.output is None and use_color(args.color, sys.stdout)
    text = render_plan(compiled, args.format, width=width(sys.stdout), color=color)
    emit(text, args.output)
    return compiled.exit_code
