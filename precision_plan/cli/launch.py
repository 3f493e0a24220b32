"""What ``launch.py`` does with its overrides: compile, print, and start what the plan describes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from precision_plan.cli._output import emit, use_color, width


def launch(
    overrides: Sequence[str],
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
) -> int:
    """Compile the recipe that ``overrides`` choose (``+recipe=NAME``) and print its plan.

    ``conf_dir`` and ``search_paths`` are those of :func:`precision_plan.api.compile`.

    Returns:
        0 if ``dry_run=true`` and the plan is clean; 1 if it has errors, 2 if it cannot be read or
        the overrides choose nothing. Without ``dry_run`` a clean plan ends with 2 as well: no
        launcher is configured, and saying that a job had been started would not be true.
    """
    from precision_plan.api import compile
    from precision_plan.render import render_plan

    compiled = compile(None, overrides, conf_dir=conf_dir, search_paths=search_paths)
    if not compiled.diagnostics and not any(compiled.plan.set_fields()):
        return _nothing_chosen(conf_dir, search_paths)
    color = use_color("auto", sys.stdout)
    emit(render_plan(compiled, "text", width=width(sys.stdout), color=color))
    if compiled.exit_code or compiled.options.get("dry_run"):
        return compiled.exit_code
    chosen = compiled.options.get("launcher")
    wanted = f"launcher={chosen} is not available" if chosen else "no launcher is configured"
    sys.stderr.write(
        f"nothing was started: {wanted}\n"
        "  hint: dry_run=true prints the plan; precision-plan plan RECIPE --format shell writes"
        " a script\n"
    )
    return 2


def _nothing_chosen(conf_dir: str | Path | None, search_paths: Sequence[str | Path]) -> int:
    from precision_plan.compose import Composer

    names = ", ".join(Composer(conf_dir, search_paths).recipes())
    sys.stderr.write(f"no recipe is chosen\n  hint: +recipe=NAME chooses one of {names}\n")
    return 2
