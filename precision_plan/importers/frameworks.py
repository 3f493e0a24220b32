"""Whose command line it is: what the file declares, else what entry and arguments show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from precision_plan.facts.frameworks import RL_FRAMEWORKS, engine_passthrough
from precision_plan.facts.launches import launch_evidence
from precision_plan.importers.launch_words import Launch
from precision_plan.importers.texts import Text

_TRAINERS = ("megatron-lm", "megadlm", *RL_FRAMEWORKS)


def frameworks_of(launch: Launch, words: Sequence[Text], declared: str | None) -> tuple[str, ...]:
    """The frameworks that may read the arguments; none if it is no launch that a plan describes.

    A declared framework counts unless the program is another one's: ``vllm serve`` in the script
    of an RL job is an engine of its own, and a training file is no engine.
    """
    if launch.program == "vllm":
        return ("vllm",)
    row = launch.row
    shown = _evidence(words)
    if row is not None and not row.frameworks:
        return ()
    candidates = row.frameworks if row is not None else _TRAINERS
    if declared in _TRAINERS:
        named = row is not None and "*" not in row.entry
        return (declared,) if shown or named else ()
    if not shown and not (row is not None and row.telling):
        return ()
    return _narrowed(candidates, launch, shown)


def _evidence(words: Sequence[Text]) -> frozenset[str]:
    """What kinds of programs read some of the arguments."""
    found: set[str] = set()
    for word in words:
        text = word.shown
        if text.startswith("--"):
            found.update(_says(text))
    return frozenset(found)


@lru_cache(maxsize=4096)
def _says(text: str) -> tuple[str, ...]:
    return tuple(row.says for row in launch_evidence() if text.startswith(row.prefix))


def _narrowed(
    candidates: tuple[str, ...], launch: Launch, shown: frozenset[str]
) -> tuple[str, ...]:
    """Those of ``candidates`` that every piece of evidence leaves."""
    engines = {
        each: passthrough.engine
        for each in candidates
        if (passthrough := engine_passthrough(each)) is not None
    }
    for engine in ("vllm", "sglang"):
        if engine in shown:
            left = tuple(each for each in candidates if engines.get(each) == engine)
            candidates = left or candidates
    if "rl" in shown or launch.submit is not None:
        candidates = tuple(each for each in candidates if each in RL_FRAMEWORKS) or candidates
    path = launch.entry.shown.split("/")[:-1] if launch.entry is not None else ()
    named = tuple(each for each in candidates if each in path)
    return named or candidates
