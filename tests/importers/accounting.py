"""Counts what became of every token of a script: nothing may vanish.

A token is a leaf of the syntax tree. It belongs to a statement that was read on some way, to one
that was left over, or to the frame around statements: ``if``, ``done``, the words of a ``for``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from precision_plan.importers.job_plan import jobs_of
from precision_plan.importers.jobs import ImportedJob, ScriptReading
from precision_plan.importers.shell.tree import parsed

if TYPE_CHECKING:
    from tree_sitter import Node

FRAMES = frozenset(
    {
        "program", "if_statement", "elif_clause", "else_clause", "for_statement", "do_group",
        "while_statement", "case_statement", "case_item", "function_definition", "list", "pipeline",
        "compound_statement", "subshell", "redirected_statement", "file_redirect",
        "heredoc_redirect", "heredoc_body", "herestring_redirect", "c_style_for_statement",
    }
)  # fmt: skip
"""Nodes that hold statements; what else stands in them directly is their frame."""


def tokens_of(reading: ScriptReading) -> Counter[str]:
    """How many tokens were read, left over, or are frames; comments are no tokens."""
    counted: Counter[str] = Counter()
    for source in reading.sources:
        spans = sorted(
            (start, end, kind)
            for (file, start, end), kind in reading.tokens.items()
            if file == source.file
        )
        for leaf, parents in _leaves(parsed(source), ()):
            kind = _kind(leaf, spans)
            if kind is None:
                frame = all(parent in FRAMES for parent in parents) or _is_of_frame(parents)
                kind = "frame" if frame else f"lost: {leaf.type} in {parents[-1]}"
            counted[kind] += 1
    return counted


def _leaves(node: Node, parents: tuple[str, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    if node.type == "comment":
        return
    if not node.children:
        if node.end_byte > node.start_byte:
            yield node, parents
        return
    for child in node.children:
        yield from _leaves(child, (*parents, node.type))


def _kind(leaf: Node, spans: list[tuple[int, int, str]]) -> str | None:
    for start, end, kind in spans:
        if start <= leaf.start_byte and leaf.end_byte <= end:
            return kind
    return None


def _is_of_frame(parents: tuple[str, ...]) -> bool:
    """True for a word of a frame: the list of a ``for``, a pattern of a ``case``, ``((X < Y))``."""
    depth = max(index for index, parent in enumerate(parents) if parent in FRAMES)
    if parents[depth] == "compound_statement":
        return parents[depth + 1].endswith("_expression")
    return parents[depth] in {
        "for_statement", "case_statement", "case_item", "file_redirect", "herestring_redirect",
        "heredoc_redirect", "heredoc_body", "c_style_for_statement",
    }  # fmt: skip


def unaccounted(reading: ScriptReading) -> list[str]:
    """What was said to be left over or passed on, and is not there."""
    found = [token for token in tokens_of(reading) if token.startswith("lost")]
    places = {(each.origin.file, each.origin.line) for each in reading.leftovers}
    by_file = {source.file: source for source in reading.sources}
    for (file, start, end), kind in reading.tokens.items():
        if kind == "left":
            first, last = by_file[file].origin(start).line, by_file[file].origin(end).line
            if not any((file, line) in places for line in range(first, last + 1)):
                found.append(f"{file}:{first} is left and in no list")
    return [*found, *lost_words(reading)]


def lost_words(reading: ScriptReading) -> list[str]:
    """Words of launches that became nothing."""
    return [each for job in jobs_of(reading) for each in _words(job)]


def _words(job: ImportedJob) -> Iterator[str]:
    """Words of a launch that became nothing."""
    words, uses = job.command.words, job.uses
    if len(words) != len(uses):
        yield f"{len(words)} words, {len(uses)} uses"
    left = {each.origin for each in job.leftovers}
    said = {*job.plan.origins.values(), *(each.origin for each in job.diagnostics)}
    extra = {str(key).lstrip("-") for key in job.plan.launch.__dict__.get("extra_args") or {}}
    if job.plan.env.train_actor is not None:
        said.update(word.origin for word in words if word.shown == "--train-env-vars")
    flags = [word.shown.partition("=")[0] for word in words]
    for index, (word, use) in enumerate(zip(words, uses, strict=True)):
        flag = word.shown.partition("=")[0]
        if use == "left" and word.origin not in left:
            yield f"{word.origin}: {word.shown} is left and in no list"
        elif use == "passed" and flag.startswith("-") and flag.lstrip("-") not in extra:
            yield f"{word.origin}: {word.shown} is passed on and in no argument"
        elif use != "read" or not flag.startswith("--") or flag in flags[index + 1 :]:
            continue  # of a flag that is given twice, the last one counts
        elif word.origin not in said:
            yield f"{word.origin}: {word.shown} is read and sets nothing"
