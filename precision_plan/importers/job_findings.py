"""What is wrong with the arguments of a launch, at the word that a person would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import NamedTuple

from precision_plan.facts.framework_behaviour import framework_behaviours
from precision_plan.facts.frameworks import RL_FRAMEWORKS, engine_passthrough
from precision_plan.facts.megatron import DEFAULT_VERSION
from precision_plan.facts.megatron_parser import Option
from precision_plan.importers.argv import Parsed, Problem
from precision_plan.importers.findings import PROBLEM_CODES, why_unknown, why_unknown_to_vllm
from precision_plan.importers.framework_argv import options_of
from precision_plan.plan import Because, Diagnostic, Fix, Origin
from precision_plan.plan.codes import compose_diagnostic

At = Callable[[int], Origin]
"""Where an argument was written, by its position."""

_CLOSE = 0.9
_MOST_LETTERS = 3


class Reader(NamedTuple):
    """Whose parser reads a command line: one of some frameworks, at versions that may be unknown.

    ``complete``: its options are all known, so that any other flag is refused.
    """

    frameworks: tuple[str, ...]
    megatron_core: str | None = None
    vllm: str | None = None
    complete: bool = False

    def options(self) -> Mapping[str, Option]:
        """What one of them takes."""
        return options_of(self.frameworks, self.megatron_core, self.vllm)


class Judged(NamedTuple):
    """Findings, and the positions of unknown flags that are not passed on, with the reason."""

    diagnostics: tuple[Diagnostic, ...]
    refused: Mapping[int, str]


def argument_findings(parsed: Parsed, reader: Reader, at: At) -> Judged:
    """Everything that the parsers of all of ``reader.frameworks`` refuse, or drop by mistake."""
    found: list[Diagnostic] = []
    refused: dict[int, str] = {}
    for problem in parsed.problems:
        if problem.kind == "stray" and at(problem.index).layer == "ps":
            continue  # quotes are lost there: it may be a part of the word before
        if problem.kind == "unknown":
            diagnostic = _unknown(problem, reader, at(problem.index))
        else:
            diagnostic = _refused(problem, at(problem.index))
        if diagnostic is not None:
            found.append(diagnostic)
            refused[problem.index] = diagnostic.message
    found += repeats(parsed, at)
    return Judged(tuple(found), refused)


def engine_findings(parsed: Parsed, vllm: str | None, default: str, at: At) -> Judged:
    """The same for ``vllm serve``; at a version that is not known a flag may be another's."""
    found: list[Diagnostic] = []
    refused: dict[int, str] = {}
    for problem in parsed.problems:
        because: tuple[Because, ...] = ()
        fix: tuple[Fix, ...] = ()
        if problem.kind == "unknown":
            because, fix = why_unknown_to_vllm(problem.flag, vllm or default)
            if vllm is None and not fix:
                continue
        code = PROBLEM_CODES[problem.kind]
        found.append(_found(code, problem, at(problem.index), because, fix))
        refused[problem.index] = problem.message
    found += repeats(parsed, at)
    return Judged(tuple(found), refused)


def repeats(parsed: Parsed, at: At) -> list[Diagnostic]:
    """Options that stand twice with different values."""
    found = []
    for field in dict.fromkeys(parsed.repeated):
        first = at(parsed.firsts[field])
        found.append(
            compose_diagnostic(
                "PP906",
                f"{field} is given more than once with different values; the last one wins",
                at(parsed.indices[field]),
                field=field,
                because=(Because("given first here", origin=first),),
                stage="parse",
            )
        )
    return found


def _refused(problem: Problem, origin: Origin) -> Diagnostic:
    return _found(PROBLEM_CODES[problem.kind], problem, origin, (), ())


def _found(
    code: str,
    problem: Problem,
    origin: Origin,
    because: tuple[Because, ...],
    fix: tuple[Fix, ...],
) -> Diagnostic:
    return compose_diagnostic(
        code,
        problem.message,
        origin,
        field=problem.field or problem.flag,
        because=because,
        fix=fix,
        stage="parse",
    )


def _unknown(problem: Problem, reader: Reader, origin: Origin) -> Diagnostic | None:
    flag = problem.flag
    if reader.complete:
        dashed = flag.replace("_", "-")
        if dashed != flag and dashed in reader.options():
            spelling = Fix(f"write {dashed}", {flag: dashed}, "safe")
            return _found("PP901", problem, origin, (), (spelling,))
        because, fix = why_unknown(flag, reader.megatron_core or DEFAULT_VERSION)
        return _found("PP901", problem, origin, because, fix)
    close = _close(flag, reader)
    if close is None:
        return None
    name, precision = close
    whose = _listed(reader.frameworks)
    problem = replace(problem, message=f"{whose} no {flag}; {name} is close")
    fix = (Fix(f"did you mean {name}?"),)
    behaviours = [framework_behaviours()[each] for each in reader.frameworks]
    if not precision and any(each.unknown_flags == "ignored" for each in behaviours):
        return _found("PP921", problem, origin, (), fix)
    return _found("PP911" if precision else "PP901", problem, origin, (), fix)


def _listed(frameworks: tuple[str, ...]) -> str:
    if len(frameworks) == 1:
        return f"{frameworks[0]} has"
    return f"{', '.join(frameworks[:-1])} and {frameworks[-1]} have"


@lru_cache(maxsize=4096)
def _close(flag: str, reader: Reader) -> tuple[str, bool] | None:
    """A known flag that is close, and whether a plan has a field for it."""
    engines = [engine_passthrough(each) for each in reader.frameworks if each in RL_FRAMEWORKS]
    if any(each and each.engine == "sglang" and flag.startswith(each.prefix) for each in engines):
        return None  # SGLang's own arguments are not catalogued
    options = reader.options()
    plain = flag.replace("_", "-")
    if plain not in options:
        found = get_close_matches(plain, options, n=1, cutoff=_CLOSE)
        plain = found[0] if found and _is_slip(plain, found[0]) else ""
    return (plain, options[plain].field is not None) if plain else None


def _is_slip(written: str, known: str) -> bool:
    """True if a few letters differ; whole words or numbers more make another flag."""
    changes = [
        (written[a:b], known[c:d])
        for kind, a, b, c, d in SequenceMatcher(None, written, known, False).get_opcodes()
        if kind != "equal"
    ]
    letters = sum(max(len(one), len(other)) for one, other in changes)
    return letters <= _MOST_LETTERS and not all(
        (one + other).strip("-").isdigit() for one, other in changes
    )
