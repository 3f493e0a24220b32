"""Proposes safe fixes of launch scripts: edits that are tried in memory and never written.

A fix stands in the diff if, read again with it, the script no longer has the finding, has no new
one, and starts the same programs with the same settings but for those that the fix speaks of.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from precision_plan.api.checking import Folders
from precision_plan.api.fix_judging import Key, doubt, key, worse
from precision_plan.api.scripts import ScriptCheck, check_script
from precision_plan.compose.reading import display_path
from precision_plan.compose.unedited import CannotEdit
from precision_plan.importers.jobs import ImportedJob
from precision_plan.importers.script_edits import Edits, JobEditor
from precision_plan.importers.shell.editing import comment_removal
from precision_plan.importers.texts import Source
from precision_plan.plan import Diagnostic, Fix
from precision_plan.plan.fixes import FileChange, Fixed, Unfixed
from precision_plan.plan.text_edits import TextEdit, edited_bytes
from precision_plan.rules.profiles import Profile

ROUNDS = 200
"""Fixes of one script; a few are usual."""
_PRINTERS = frozenset({"echo", "printf", "cat", ":", "true"})
_CRLF = re.compile(rb"\r\n")


class Proposals(NamedTuple):
    """What the safe fixes of some scripts are, and what cannot be fixed so."""

    fixed: tuple[Fixed, ...]
    unfixed: tuple[Unfixed, ...]
    changes: tuple[FileChange, ...]


def fix_scripts(paths: Sequence[Path], profile: Profile) -> Proposals:
    """The safe fixes of scripts; a file that several of them source is left alone."""
    texts = _Texts()
    given = {display_path(path) for path in paths}
    folders = Folders()
    first = {path: check_script(path, profile, {}, folders) for path in paths}
    users: dict[str, list[str]] = {}
    for path, check in first.items():
        for source in _sources(check):
            users.setdefault(source.file, []).append(display_path(path))
    done: list[_Script] = []
    for path, check in first.items():
        if any(each.safe_fix for each in check.diagnostics):
            done.append(_Script(path, profile, folders, texts, given, users, check))
            done[-1].settle()
    return Proposals(
        tuple(each for script in done for each in script.fixed),
        tuple(each for script in done for each in script.unfixed),
        tuple(texts.changes()),
    )


class _Texts:
    """Files as they are on disk, and as they would be."""

    def __init__(self) -> None:
        self.before: dict[str, bytes] = {}
        self.now: dict[str, bytes] = {}

    @property
    def instead(self) -> dict[str, bytes]:
        """The texts as scripts are read: lines end with a line feed."""
        return {name: data.replace(b"\r\n", b"\n") for name, data in self.now.items()}

    def with_edits(self, edits: Edits) -> dict[str, bytes]:
        """All texts with some edits made, whose positions are those of :attr:`instead`.

        Raises:
            CannotEdit: if edits overlap.
        """
        found = dict(self.now)
        for name in dict.fromkeys(name for name, _ in edits):
            if name not in self.before:
                self.before[name] = Path(name).read_bytes()
            data = found.get(name, self.before[name])
            ends = [end.start() - number for number, end in enumerate(_CRLF.finditer(data))]
            moved = [
                TextEdit(
                    edit.start + bisect_left(ends, edit.start),
                    edit.end + bisect_left(ends, edit.end),
                    edit.text,
                )
                for file, edit in edits
                if file == name
            ]
            try:
                found[name] = edited_bytes(data, moved)
            except ValueError:
                raise CannotEdit("two of its edits overlap") from None
        return found

    def changes(self) -> Iterable[FileChange]:
        """The files that are not what they were."""
        for name, after in self.now.items():
            before = self.before[name]
            if before != after:
                path = Path(os.path.realpath(name))
                yield FileChange(path, name, before.decode(), after.decode())


class _Script:
    """One script on its way to what no safe fix can better."""

    def __init__(
        self,
        path: Path,
        profile: Profile,
        folders: Folders,
        texts: _Texts,
        given: set[str],
        users: Mapping[str, Sequence[str]],
        check: ScriptCheck,
    ) -> None:
        self.path, self.name = path, display_path(path)
        self.profile, self.folders = profile, folders
        self.texts = texts
        self.given, self.users = given, users
        self.check = check
        self.fixed: list[Fixed] = []
        self._refused: dict[Key, Unfixed] = {}
        self._seen = {key(found): found for found in reversed(check.diagnostics)}

    @property
    def unfixed(self) -> tuple[Unfixed, ...]:
        """Findings that are still there although they have a safe fix."""
        left = {key(found) for found in self.check.diagnostics}
        return tuple(each for found, each in self._refused.items() if found in left)

    def settle(self) -> None:
        """Fix until nothing is left to fix."""
        for _ in range(ROUNDS):
            if not self._step():
                break

    def _step(self) -> bool:
        """Try the safe fixes one after the other; true as soon as one is made."""
        errors = [each for each in self.check.diagnostics if each.severity == "error"]
        waiting: dict[Key, Unfixed] = {}
        for found in self.check.diagnostics:
            fix = found.safe_fix
            if fix is None or key(found) in self._refused:
                continue
            why = doubt(found, errors) or _misread(found, self.check.diagnostics)
            if why is not None:
                waiting[key(found)] = Unfixed(found, fix, why)
                continue
            try:
                self._attempt(found, fix)
            except CannotEdit as error:
                first = self._seen.get(key(found), found)
                self._refused[key(found)] = Unfixed(first, fix, str(error))
                continue
            self.fixed.append(Fixed(self._seen.get(key(found), found), fix))
            return True
        self._refused.update(waiting)
        return False

    def _attempt(self, found: Diagnostic, fix: Fix) -> None:
        """Make a fix.

        Raises:
            CannotEdit: if it cannot be made, or the script would be no better.
        """
        edits = self._edits(found, fix)
        for name in {name for name, _ in edits}:
            self._check_file(name)
        texts = self.texts.with_edits(edits)
        instead = {name: data.replace(b"\r\n", b"\n") for name, data in texts.items()}
        after = check_script(self.path, self.profile, {}, self.folders, instead)
        refused = tuple(fix.edits) if found.id.startswith("PP9") else None
        why = worse(self.check.diagnostics, after.diagnostics, (found,), refused)
        why = why or _other_changes(self.check, after, found, fix)
        if why is not None:
            raise CannotEdit(why)
        self.texts.now = texts
        self.check = after

    def _edits(self, found: Diagnostic, fix: Fix) -> Edits:
        sources = _sources(self.check)
        if fix.comment:
            for source in sources:
                if source.file == fix.comment.file:
                    edit = comment_removal(source, fix.comment.line, fix.comment.column)
                    return [(source.file, edit)]
            raise CannotEdit("the comment stands in another file")
        edits: Edits = []
        for job, of_job in zip(self.check.jobs, self.check.by_job, strict=True):
            if _has(of_job, found):
                edits += JobEditor(job, sources, _spelt).edits(fix.edits, found.origin)
        if not edits:
            raise CannotEdit("nothing in the script sets it")
        return list(dict.fromkeys(edits))

    def _check_file(self, name: str) -> None:
        """Refuse to touch what is not this script's alone."""
        if name not in self.given:
            raise CannotEdit(f"{name} was not given")
        others = [user for user in self.users.get(name, ()) if user not in {self.name, name}]
        if others:
            raise CannotEdit(f"{', '.join(others[:3])} reads {name}, too")


def _sources(check: ScriptCheck) -> Sequence[Source]:
    reading = check.script.reading if check.script else None
    return reading.sources if reading else ()


def _has(diagnostics: Iterable[Diagnostic], found: Diagnostic) -> bool:
    """True if a launch has this finding, at this place."""
    return any(key(each) == key(found) and each.origin == found.origin for each in diagnostics)


_ONLY_REPEATED = frozenset({"PP906", "PP916"})


def _misread(found: Diagnostic, others: Iterable[Diagnostic]) -> str | None:
    """Why an option may have an effect after all: a word of the script is not read as it was meant.

    Numbers of layers have none without ``--first-last-layers-bf16``; but if that flag is misspelt,
    they will have one as soon as a person has mended it.
    """
    fix = found.safe_fix
    if found.stage == "parse" or fix is None or fix.comment:
        return None
    if all(field.startswith("env.") for field in fix.edits):
        return None
    for other in others:
        if other.stage == "parse" and other.id not in _ONLY_REPEATED:
            return f"{other.id} in line {other.origin.line} is to be resolved first"
    return None


def _spelt(field: str, value: Any) -> Sequence[str]:
    """The words that give Megatron a field's value; none for a switch that is off.

    Raises:
        CannotEdit: if no option of Megatron's says so.
    """
    from precision_plan.lower.spelling import field_words

    found = field_words(field, value)
    if found is None:
        raise CannotEdit(f"no option of Megatron-LM says {field} = {value}")
    return found


# What a script means --------------------------------------------------------------------------
def _other_changes(
    before: ScriptCheck, after: ScriptCheck, found: Diagnostic, fix: Fix
) -> str | None:
    """What would change besides the settings that a fix speaks of; ``None`` if nothing would.

    Launches that differed only in what is fixed may have become one.
    """
    if _others(before) != _others(after):
        return "a command that is no launch uses it, too"
    touched = frozenset(fix.edits)
    if any(name.startswith("-") for name in touched):  # an option that is read from now on
        touched |= {
            field
            for job in after.jobs
            for field, origin in job.plan.origins.items()
            if origin == found.origin
        }
    now = [_meaning(job, touched) for job in after.jobs]
    whole = [_meaning(job) for job in after.jobs]
    kept: set[int] = set()
    for job, of_job in zip(before.jobs, before.by_job, strict=True):
        if _has(of_job, found):
            rest = _meaning(job, touched)
            same = [at for at, each in enumerate(now) if each == rest]
            same = [at for at in same if _is_done(after.jobs[at], fix)]
        else:
            rest = _meaning(job)
            same = [at for at, each in enumerate(whole) if each == rest]
        if not same:
            way = " and ".join(map(str, job.branches))
            return f"something else would change{f' where {way}' if way else ''}"
        kept.update(same)
    return None if len(kept) == len(now) else "the script would start something else"


def _others(check: ScriptCheck) -> set[tuple[str, ...]]:
    """The commands that are no launches, but for those that only print."""
    launches = {job.command.origin for job in check.jobs}
    reading = check.script.reading if check.script else None
    commands = reading.commands if reading else ()
    shown = (
        tuple(word.shown for word in each.words) for each in commands if each.origin not in launches
    )
    return {words for words in shown if words and words[0] not in _PRINTERS}


def _meaning(job: ImportedJob, without: Iterable[str] = ()) -> str:
    """Everything that a launch sets, but for some fields, as one text."""
    data = {section: dict(values) for section, values in job.plan.canonical().items()}
    for field in without:
        section, _, name = field.partition(".")
        values, (name, *rest) = data.get(section, {}), name.split(".", 1)
        if not rest:
            values.pop(name, None)
        elif isinstance(values.get(name), Mapping):
            inner = {key: each for key, each in values[name].items() if key != rest[0]}
            values[name] = inner
    settings = {
        section: {name: value for name, value in values.items() if value != {}}
        for section, values in data.items()
    }
    unknown = sorted(set(job.plan.unknown_fields()) - set(without))
    settings = {section: values for section, values in settings.items() if values}
    return json.dumps([job.candidates, settings, unknown], sort_keys=True, default=str)


def _is_done(job: ImportedJob, fix: Fix) -> bool:
    """True if the fields of a fix are what it says; a switch may be off by not being set."""
    unknown = set(job.plan.unknown_fields())
    for field, value in fix.edits.items():
        if field.startswith("-"):
            continue
        now = None if field in unknown else _value(job, field)
        if field in unknown or not (now == value or (now is None and isinstance(value, bool))):
            return False
    return True


def _value(job: ImportedJob, field: str) -> Any:
    section, name, *rest = field.split(".", 2)
    value = job.plan.canonical().get(section, {}).get(name)
    for key_ in rest:
        value = value.get(key_) if isinstance(value, Mapping) else None
    return value
