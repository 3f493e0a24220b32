"""``lint --baseline FILE``: hides the findings of the file, or writes today's into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from precision_plan.cli._arguments import UsageError
from precision_plan.cli._output import replace_file
from precision_plan.plan import baseline
from precision_plan.plan.codes import is_broken_input
from precision_plan.plan.compiled import BaselineUse, LintReport
from precision_plan.render._mask import Mask
from precision_plan.render._told import key_of

if TYPE_CHECKING:
    from precision_plan.plan.baseline import Baseline, Entry, Judged, Key
    from precision_plan.render._run import Run

_MISSING = "--update-baseline records today's findings in it"
_FOREIGN = "name another file, or delete it and record today's findings with --update-baseline"


def against(
    report: LintReport, file: str, paths: Sequence[str], profile: str, run: Run
) -> LintReport:
    """The report without the findings that the baseline holds.

    Raises:
        UsageError: if the file cannot be read or is no baseline.
    """
    known = _read(Path(file))
    keys = [key_of(found, run, Mask()) for found in report.diagnostics]
    # What could not be read at all is never hidden, as it is never suppressed.
    flags = [
        flag and not is_broken_input(found)
        for flag, found in zip(baseline.hidden(keys, known), report.diagnostics, strict=True)
    ]
    pairs = tuple(zip(report.diagnostics, flags, strict=True))
    used = BaselineUse(
        file=file,
        hidden=tuple(found for found, flag in pairs if flag),
        gone=baseline.gone(keys, known, _judged(report, known, paths, profile, run)),
    )
    kept = tuple(found for found, flag in pairs if not flag)
    return replace(report, diagnostics=kept, baseline=used)


def update(
    report: LintReport, file: str, paths: Sequence[str], profile: str, run: Run
) -> LintReport:
    """Write today's findings into the file; the report is then without them.

    Nothing is written while some input cannot be read: what it holds is not known.

    Raises:
        UsageError: if the file is there and no baseline, or cannot be written.
    """
    if any(map(is_broken_input, report.diagnostics)):
        return report
    path = Path(file)
    old = _read(path) if path.exists() else None
    judged = _judged(report, old, paths, profile, run) if old else _all
    found = [(key_of(each, run, Mask()), each.severity) for each in report.diagnostics]
    new = baseline.updated(found, [run.path(name) for name in paths], old, judged)
    try:
        replace_file(path, baseline.dump(new))
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    used = BaselineUse(file=file, hidden=report.diagnostics, recorded=len(found))
    return replace(report, diagnostics=(), baseline=used)


def _read(path: Path) -> Baseline:
    try:
        return baseline.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the baseline {path}: {error.strerror}", _MISSING) from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no baseline: it is not text in UTF-8", _FOREIGN) from None
    except ValueError as error:
        raise UsageError(f"{path} is no baseline: {error}", _FOREIGN) from error


def _judged(
    report: LintReport, known: Baseline, paths: Sequence[str], profile: str, run: Run
) -> Judged:
    """Whether today's run says anything about an entry.

    It does if the same paths are linted as when the baseline was written; else about the files
    that are linted, and about files that are gone. ``explore`` is silent about all but errors.
    """
    same = {run.path(name) for name in paths} == set(known.paths)
    linted = {run.path(name) for name in report.files}

    def judged(key: Key, entry: Entry) -> bool:
        if profile == "explore" and entry.severity != "error":
            return False
        return same or key.file in linted or not Path(run.root, key.file).exists()

    return judged


def _all(key: Key, entry: Entry) -> bool:
    return True
