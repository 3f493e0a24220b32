"""Write down what a recipe or script compiles to, to be compared with later.

The lock holds the plan, what it lowers to, the versions assumed and the findings accepted; secrets
by their names only. `lint RECIPE --lock FILE` and `diff FILE RECIPE` compare with it.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from precision_plan.cli._arguments import (
    Parser,
    add_conf_options,
    add_destination,
    add_profile_option,
)
from precision_plan.cli._output import emit, use_color, width


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="name in conf/recipes, YAML file, or launch script (run.sh#2: its second way)",
    )
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="as Hydra reads them: section.key=value"
    )
    add_destination(parser)
    add_profile_option(parser)
    add_conf_options(parser)


def run(args: Namespace) -> int:
    """Write the lock; 0, or 1 for a plan with errors and 2 for broken input, without a lock."""
    from precision_plan.api import lock
    from precision_plan.plan.compiled import exit_code
    from precision_plan.render import render_lint

    found = lock(
        args.recipe,
        args.overrides,
        conf_dir=args.conf_dir,
        search_paths=args.search_path,
        profile=args.profile,
    )
    if found.text is None:
        color = use_color("auto", sys.stderr)
        sys.stderr.write(render_lint(found.report, "text", width=width(sys.stderr), color=color))
        sys.stderr.write("not locked: mend the errors first\n")
        return exit_code(found.report.diagnostics)
    emit(found.text, args.output)
    return 0
