"""Print which trained format goes with which rollout format on which GPU, and why not.

Every cell is a minimal plan that the rules of lint have judged; maturity is what the framework's
documentation says of the pair.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Collection

from precision_plan.cli._arguments import Parser, UsageError, add_output_options, closest
from precision_plan.cli._output import emit, use_color, width

GPUS = "h100,b200,mi300x"


def configure(parser: Parser) -> None:
    """Options of the verb."""
    from precision_plan.render.matrix import MATRIX_FORMATS

    parser.add_argument(
        "--gpu", metavar="NAME,...", default=GPUS, help=f"GPUs (default: {GPUS}; all: every one)"
    )
    parser.add_argument(
        "--framework", metavar="NAME,...", help="vime, slime, miles (default: all of them)"
    )
    parser.add_argument(
        "--target",
        metavar="PACKAGE=VERSION",
        nargs="+",
        action="extend",
        default=[],
        help="versions to judge by: vllm=0.33.0 transformer_engine=2.9.0 ...",
    )
    parser.add_argument("--all", action="store_true", help="list undocumented pairs, too")
    add_output_options(parser, MATRIX_FORMATS)


def run(args: Namespace) -> int:
    """Print the matrix; 0, or 2 for a GPU, framework or target that there is not."""
    from precision_plan.api import matrix
    from precision_plan.cli.lint import target_of
    from precision_plan.facts.frameworks import RL_FRAMEWORKS
    from precision_plan.facts.gpus import gpus
    from precision_plan.plan.target import PACKAGES
    from precision_plan.render.matrix import render_matrix

    target = target_of(args.target)
    for key in target:
        if key not in PACKAGES:
            raise UsageError(
                f"--target {key}={target[key]}: the matrix takes versions only",
                f"GPUs: --gpu; frameworks: --framework; packages: {', '.join(PACKAGES)}",
            )
    found = matrix(
        tuple(gpus()) if args.gpu == "all" else _names("--gpu", args.gpu, gpus()),
        frameworks=_names("--framework", args.framework or ",".join(RL_FRAMEWORKS), RL_FRAMEWORKS),
        versions=target,
    )
    color = args.output is None and use_color(args.color, sys.stdout)
    text = render_matrix(found, args.format, width=width(sys.stdout), color=color, every=args.all)
    emit(text, args.output)
    return 0


def _names(option: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """``"h100,B200"`` as known names, each once.

    Raises:
        UsageError: if a name is not known, or there is none.
    """
    names = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if not names:
        raise UsageError(f"{option}: no name", f"known: {', '.join(known)}")
    for name in names:
        if name not in known:
            near = closest(name, known)
            hint = f"known: {', '.join(known)}"
            raise UsageError(
                f"{option}: there is no {name!r}",
                f"did you mean {near!r}? {hint}" if near else hint,
            )
    return names
