"""Applies safe fixes to recipes and group files, in memory: who calls it writes the files.

Every fix is tried on the text of its file and judged by checking the result: the finding must be
gone, and no other one may have come. What cannot be fixed so is left as it is, with the reason.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from precision_plan.api.checking import Folders, check, check_profile
from precision_plan.api.fix_judging import doubt, key, worse
from precision_plan.api.linting import check_group
from precision_plan.compose import Composer
from precision_plan.compose.discovery import Candidate, discover, is_script
from precision_plan.compose.document import Document, document_of
from precision_plan.compose.editing import edit, without_comments
from precision_plan.compose.reading import Unreadable, display_path, read_source
from precision_plan.compose.unedited import CannotEdit
from precision_plan.plan import Diagnostic, Fix, Origin
from precision_plan.plan.fixes import FileChange, Fixed, Fixes, Unfixed
from precision_plan.rules.profiles import Profile

ROUNDS = 20
"""Rounds of checking and fixing one file; each fixes all that it can, and two are usual."""
AT_ONCE = 500
"""Fixes of one round; a recipe needs a handful."""


def fix(
    paths: Iterable[str | Path],
    *,
    profile: Profile = "ci",
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    skip_others: bool = False,
) -> Fixes:
    """What the safe fixes of :func:`lint` make of the files below ``paths``; nothing is written.

    What they make of scripts is only proposed (:attr:`Fixes.proposed`). Only files below
    ``paths`` change. A fix never rests on an assumed target: a setting that has no effect on one
    machine may have one on another. A setting of a group file, or of a recipe that other recipes
    include, is left alone unless the schema refuses it for all of them.

    Raises:
        ValueError: if there is no such profile.
    """
    check_profile(profile)
    discovered = discover(paths, skip_others=skip_others)
    candidates = discovered.candidates
    names = frozenset(display_path(each.path) for each in candidates)
    judge = _Judge(profile, conf_dir, search_paths, names)
    shared = _shared(judge, candidates)
    done: list[_File] = []
    for candidate in sorted(candidates, key=lambda each: each.section is None):
        try:
            file = _File(candidate, judge, shared.get(display_path(candidate.path), ()))
        except Unreadable:
            continue
        file.settle()
        done.append(file)
    proposals = None
    scripts = [path for path in discovered.scripts if is_script(path)]
    if scripts:
        from precision_plan.api.script_fixing import fix_scripts

        proposals = fix_scripts(scripts, profile)
    return Fixes(
        tuple(each for file in done for each in file.fixed),
        (
            *(each for file in done for each in file.unfixed),
            *(proposals.unfixed if proposals else ()),
        ),
        tuple(
            FileChange(file.path, file.name, file.before, file.text)
            for file in done
            if file.text != file.before
        ),
        proposals.changes if proposals else (),
        proposals.fixed if proposals else (),
    )


class _Judged(NamedTuple):
    diagnostics: tuple[Diagnostic, ...]
    origins: Mapping[str, Origin] = {}


class _Judge:
    """Checks a file as it would be with the texts that are at hand."""

    def __init__(
        self,
        profile: Profile,
        conf_dir: str | Path | None,
        search_paths: Sequence[str | Path],
        names: frozenset[str],
    ) -> None:
        self.names = names
        self.profile = profile
        self.conf_dir = conf_dir
        self.search_paths = search_paths
        self.folders = Folders()
        self.texts: dict[str, str] = {}

    def __call__(self, candidate: Candidate) -> _Judged:
        composer = self._composer(candidate)
        if candidate.section is not None:
            return _Judged(check_group(composer, candidate.section, candidate.path))
        composition = composer.compose(candidate.path)
        checked = check(composition, self.profile, None, self.folders)
        return _Judged(checked.diagnostics, composition.origins)

    def files(self, candidate: Candidate) -> tuple[str, ...]:
        """The files that a recipe is made of."""
        return self._composer(candidate).compose(candidate.path).files

    def _composer(self, candidate: Candidate) -> Composer:
        folder = (candidate.conf if self.conf_dir is None else None) or self.conf_dir
        return Composer(folder, self.search_paths, self.texts)


def _shared(judge: _Judge, candidates: Iterable[Candidate]) -> dict[str, tuple[str, ...]]:
    """For each file, the other recipes among the candidates that include it."""
    users: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.section is None:
            name = display_path(candidate.path)
            for file in judge.files(candidate):
                if file != name:
                    users.setdefault(file, []).append(name)
    return {file: tuple(names) for file, names in users.items()}


class _Try(NamedTuple):
    """A fix that may be tried: what it changes in the text of the file."""

    diagnostic: Diagnostic
    fix: Fix
    changes: Mapping[str, object]


class _File:
    """One file on its way from what it was to what no safe fix can better."""

    def __init__(self, candidate: Candidate, judge: _Judge, users: tuple[str, ...]) -> None:
        self.candidate = candidate
        self.judge = judge
        self.users = users
        self.name = display_path(candidate.path)
        self.path = Path(os.path.realpath(candidate.path))
        self.before = self.text = read_source(candidate.path, self.name)
        self.fixed: list[Fixed] = []
        self._refused: dict[tuple[object, ...], Unfixed] = {}
        self._waiting: list[Unfixed] = []  # for an error to be resolved
        self._seen: dict[tuple[object, ...], Diagnostic] = {}
        self._last: _Judged | None = None

    @property
    def unfixed(self) -> tuple[Unfixed, ...]:
        """Findings that are still there although they have a safe fix."""
        left = {key(found) for found in self._last.diagnostics} if self._last else set()
        refused = (each for found, each in self._refused.items() if found in left)
        return (*refused, *self._waiting)

    def settle(self) -> None:
        """Fix until nothing is left to fix."""
        for _ in range(ROUNDS):
            self._last = judged = self.judge(self.candidate)
            self._note(judged)
            tries = self._tries(judged)
            if not tries or not self._round(judged, tries):
                break

    def _note(self, judged: _Judged) -> None:
        """Remember where a finding stood before any line moved; of several alike, none is it."""
        alike = Counter(map(key, judged.diagnostics))
        for found in judged.diagnostics:
            if alike[key(found)] == 1:
                self._seen.setdefault(key(found), found)

    def _round(self, judged: _Judged, tries: Sequence[_Try]) -> bool:
        """All at once if that goes well, else one by one; true if the text changed."""
        if self._attempt(judged, tries):
            return True
        changed = False
        for each in tries if len(tries) > 1 else ():
            if self._attempt(judged, (each,)):
                changed = True
                judged = self.judge(self.candidate)
        return changed

    def _attempt(self, judged: _Judged, tries: Sequence[_Try]) -> bool:
        """Apply what can be applied, if the file is the better for it."""
        comments = [each for each in tries if each.fix.comment]
        text, applied = self._without(comments), comments
        if text is None:
            return False
        touched: set[str] = set()
        for each in tries:
            if each.fix.comment or touched.intersection(each.changes):
                continue  # another fix of this round speaks of the same key
            try:
                text = edit(text, each.changes)
            except CannotEdit as error:
                self._refuse(each.diagnostic, each.fix, str(error))
                continue
            touched.update(each.changes)
            applied.append(each)
        if not applied:
            return False
        worse = self._worse(judged, text, applied)
        if worse is None:
            self.text = self.judge.texts[str(self.path)] = text
            for each in applied:
                first = self._seen.get(key(each.diagnostic), each.diagnostic)
                self.fixed.append(Fixed(first, each.fix))
            return True
        if len(applied) == 1:
            self._refuse(applied[0].diagnostic, applied[0].fix, worse)
        return False

    def _without(self, tries: Sequence[_Try]) -> str | None:
        """The text without comments that go; first of all, while their positions hold."""
        places = [each.fix.comment for each in tries if each.fix.comment]
        if not places:
            return self.text
        try:
            return without_comments(self.text, [(each.line, each.column) for each in places])
        except CannotEdit as error:
            for each in tries:
                self._refuse(each.diagnostic, each.fix, str(error))
            return None

    def _worse(self, judged: _Judged, text: str, applied: Sequence[_Try]) -> str | None:
        """Why the file would be no better with ``text``; ``None`` if it would be."""
        kept = self.judge.texts.get(str(self.path))
        self.judge.texts[str(self.path)] = text
        after = self.judge(self.candidate).diagnostics
        if kept is None:
            del self.judge.texts[str(self.path)]
        else:
            self.judge.texts[str(self.path)] = kept
        # What was refused is read now: there may be something to say about it.
        refused = [each for each in applied if each.diagnostic.stage == "compose"]
        read = {field for each in refused for field in each.fix.edits} if refused else None
        return worse(judged.diagnostics, after, (each.diagnostic for each in applied), read)

    # -- from findings to edits -------------------------------------------------------------

    def _tries(self, judged: _Judged) -> list[_Try]:
        """What may be tried: comments last to first, so that one by one the others stay put."""
        document = document_of(self.text, self.candidate.path, self.name)
        errors = [each for each in judged.diagnostics if each.severity == "error"]
        found = []
        self._waiting = []
        for diagnostic in judged.diagnostics:
            fix = diagnostic.safe_fix
            if fix is None or key(diagnostic) in self._refused:
                continue
            if diagnostic.stage == "compose" and diagnostic.origin.file != self.name:
                if diagnostic.origin.file not in self.judge.names:
                    self._refuse(diagnostic, fix, f"{diagnostic.origin.file} was not given")
                continue  # else it has a turn of its own
            why = doubt(diagnostic, errors)
            if why is not None:
                self._waiting.append(Unfixed(diagnostic, fix, why))
                continue
            try:
                changes = self._changes(diagnostic, fix, judged.origins, document)
            except CannotEdit as error:
                self._refuse(diagnostic, fix, str(error))
                continue
            if changes or fix.comment:
                found.append(_Try(diagnostic, fix, changes))
        found.sort(key=lambda each: each.fix.comment.line if each.fix.comment else 0, reverse=True)
        return found[:AT_ONCE]

    def _changes(
        self,
        diagnostic: Diagnostic,
        fix: Fix,
        origins: Mapping[str, Origin],
        document: Document,
    ) -> dict[str, object]:
        """The fix in keys of the file.

        Raises:
            CannotEdit: if it concerns other files.
        """
        if self.users and (diagnostic.stage != "compose" or fix.comment):
            raise CannotEdit(f"{', '.join(self.users)} includes this file")
        if fix.comment:
            return {}
        package = _package(document, self.candidate)
        changes: dict[str, object] = {}
        renames = None in fix.edits.values()
        for field, value in fix.edits.items():
            if not f"{field}.".startswith(package):
                raise CannotEdit(f"{field} is set outside of this file")
            if value is None and diagnostic.stage != "compose":
                origin = origins.get(field)
                if origin is None:
                    continue  # nobody sets it
                if origin.file != self.name:
                    raise CannotEdit(f"{field} is set in {origin}, which others may use")
            if value is not None and renames and field in origins:
                raise CannotEdit(f"{field} is set already in {origins[field]}")
            changes[field[len(package) :]] = value
        return changes

    def _refuse(self, diagnostic: Diagnostic, fix: Fix, why: str) -> None:
        self._refused[key(diagnostic)] = Unfixed(diagnostic, fix, why)


def _package(document: Document, candidate: Candidate) -> str:
    """The plan section that the keys of a file belong to, with a dot; empty for all of them."""
    header = document.package or candidate.section or "_global_"
    name = header.removeprefix("_global_").removeprefix(".")
    return f"{name}." if name else ""
