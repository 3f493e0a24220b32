"""Formats: pure functions of a compiled recipe or a lint report to text, one file each.

A format is a module with ``plan(compiled)`` and/or ``lint(report)``; :data:`PLAN_FORMATS`,
:data:`LINT_FORMATS` and :data:`PREFLIGHT_FORMATS` name those that exist. Only ``text`` takes a
width and colour; those for CI take what they may know of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precision_plan.plan.compiled import Compiled, LintReport, Preflight
    from precision_plan.render._run import Run

PLAN_FORMATS = ("text", "json", "shell")
LINT_FORMATS = ("text", "json", "github", "sarif", "junit", "markdown")
PREFLIGHT_FORMATS = ("text", "json")
_OF_RUNS = {
    "github": "github",
    "sarif": "sarif",
    "junit": "junit",
    "markdown": "job_summary",
}
"""Formats for CI and their modules."""


def render_plan(compiled: Compiled, format: str, *, width: int = 80, color: bool = False) -> str:
    """Render a compiled recipe in one of :data:`PLAN_FORMATS`; ends with a newline.

    Raises:
        ValueError: if there is no such format.
    """
    if format == "text":
        from precision_plan.render import text

        return text.plan(compiled, width=width, color=color)
    if format == "json":
        from precision_plan.render import json

        return json.plan(compiled)
    if format == "shell":
        from precision_plan.render import shell

        return shell.plan(compiled)
    raise ValueError(f"there is no format {format!r}; known: {', '.join(PLAN_FORMATS)}")


def render_lint(
    report: LintReport,
    format: str,
    *,
    width: int = 80,
    color: bool = False,
    run: Run | None = None,
) -> str:
    """Render a lint report in one of :data:`LINT_FORMATS`; ends with a newline.

    Raises:
        ValueError: if there is no such format.
    """
    if format == "text":
        from precision_plan.render import text

        return text.lint(report, width=width, color=color)
    if format == "json":
        from precision_plan.render import json

        return json.lint(report)
    if format in _OF_RUNS:
        from importlib import import_module

        from precision_plan.render._run import Run

        module = import_module(f"precision_plan.render.{_OF_RUNS[format]}")
        rendered: str = module.lint(report, run or Run())
        return rendered
    raise ValueError(f"there is no format {format!r}; known: {', '.join(LINT_FORMATS)}")


def render_preflight(
    report: Preflight, format: str, *, width: int = 80, color: bool = False
) -> str:
    """Render what was looked at before a launch in one of :data:`PREFLIGHT_FORMATS`.

    Raises:
        ValueError: if there is no such format.
    """
    if format == "text":
        from precision_plan.render import text

        return text.preflight(report, width=width, color=color)
    if format == "json":
        from precision_plan.render import json

        return json.preflight(report)
    raise ValueError(f"there is no format {format!r}; known: {', '.join(PREFLIGHT_FORMATS)}")
