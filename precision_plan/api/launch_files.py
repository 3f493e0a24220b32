"""What a file starts: a script, a launcher in Python, a job description, a list of processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from precision_plan.compose.discovery import is_script
from precision_plan.compose.reading import display_path
from precision_plan.importers.texts import Source
from precision_plan.plan import Diagnostic, Origin
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.leftover import Leftover
from precision_plan.plan.suppression import Suppression

if TYPE_CHECKING:
    from precision_plan.importers.declarations import Declared
    from precision_plan.importers.jobs import ImportedJob, ScriptReading

_JOB_FILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Script:
    """A file with its launches, one for each way, and what is said about the file itself.

    ``reading_leftovers`` are those of the file; a launch has its own. ``reading`` is what a shell
    script says.
    """

    name: str
    jobs: tuple[ImportedJob, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    reading_leftovers: tuple[Leftover, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    reading: ScriptReading | None = None

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        """Those of the file and of its launches, each once."""
        of_jobs = (each for job in self.jobs for each in job.leftovers)
        return tuple(dict.fromkeys((*self.reading_leftovers, *of_jobs)))


NOTHING_INSTEAD: Mapping[str, bytes] = MappingProxyType({})


def read_launches(
    path: Path, target: Mapping[str, str], instead: Mapping[str, bytes] = NOTHING_INSTEAD
) -> Script:
    """The launches of one file; one that cannot be read is a finding.

    ``instead`` has texts for scripts by the path as it is shown, in the place of those on disk.
    """
    from precision_plan.importers.shell.files import Unreadable, read_script_file

    shown = display_path(path)
    script = is_script(path) or path.suffix == ".py"
    if shown in instead:
        return _shell(Source(shown, instead[shown]), target, instead)
    try:
        data = read_script_file(path, binary=not script and path.suffix not in _JOB_FILES)
    except Unreadable as error:
        return Script(
            shown, diagnostics=(compose_diagnostic("PP010", f"{shown}: {error}", Origin(shown)),)
        )
    source = Source(shown, data)
    if path.suffix in _JOB_FILES:
        return _job_file(source, target)
    if path.suffix == ".py":
        return _python(source, target)
    if script or not _lists_processes(data):
        return _shell(source, target, instead)
    return _processes(source, target)


def _lists_processes(data: bytes) -> bool:
    """True for a saved ``ps`` by its first line, or a ``/proc/PID/cmdline`` by its NUL bytes."""
    head = data.lstrip().partition(b"\n")[0]
    return b"\0" in data or (b"PID" in head and (b"CMD" in head or b"COMMAND" in head))


def _shell(source: Source, target: Mapping[str, str], instead: Mapping[str, bytes]) -> Script:
    from precision_plan.importers.shell.reader import read_script
    from precision_plan.importers.shell.suppressions import suppressions_of

    return _from_reading(read_script(source, instead), target, suppressions_of)


def _python(source: Source, target: Mapping[str, str]) -> Script:
    from precision_plan.importers.python.reader import read_launcher
    from precision_plan.importers.python.suppressions import suppressions_of

    return _from_reading(read_launcher(source), target, suppressions_of)


def _processes(source: Source, target: Mapping[str, str]) -> Script:
    from precision_plan.importers.job_files import read_processes

    return _from_reading(read_processes(source), target, lambda sources: ())


def _from_reading(
    reading: ScriptReading,
    target: Mapping[str, str],
    suppressions: Callable[[tuple[Source, ...]], tuple[Suppression, ...]],
) -> Script:
    from precision_plan.importers.declarations import declared_in
    from precision_plan.importers.job_plan import jobs_of

    declared = declared_in(reading.sources)
    jobs = jobs_of(reading, declared.over(target))
    return Script(
        reading.sources[0].file,
        jobs,
        (*reading.diagnostics, *declared.diagnostics),
        reading.leftovers,
        suppressions(reading.sources),
        reading,
    )


def _job_file(source: Source, target: Mapping[str, str]) -> Script:
    from precision_plan.compose.comments import suppressions_in
    from precision_plan.importers.declarations import declared_in
    from precision_plan.importers.job_yaml import read_job_file

    declared: Declared = declared_in((source,))
    found = read_job_file(source, declared.over(target))
    if found is None:
        return Script(source.file)
    text = source.data.decode("utf-8", "replace")
    return Script(
        source.file,
        tuple(found.jobs),
        (*found.diagnostics, *declared.diagnostics),
        tuple(found.leftovers),
        suppressions_in(text, source.file, partial(list, ())),
    )
