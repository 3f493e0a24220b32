"""Turns what is wrong with a command line into findings."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache

from precision_plan.facts.framework_behaviour import framework_behaviours
from precision_plan.facts.megatron_absent import absent_flags
from precision_plan.facts.megatron_parser import Option, parser_at
from precision_plan.facts.vllm import engine_args
from precision_plan.facts.vllm_options import options_at
from precision_plan.importers.argv import Parsed, Problem, ProblemKind
from precision_plan.plan import UNKNOWN, Because, Diagnostic, Fix
from precision_plan.plan.codes import compose_diagnostic

PROBLEM_CODES: Mapping[ProblemKind, str] = {
    "unknown": "PP901",
    "choice": "PP902",
    "type": "PP902",
    "count": "PP903",
    "stray": "PP904",
    "ambiguous": "PP905",
}


def parse_findings(parsed: Parsed, megatron_core: str) -> tuple[Diagnostic, ...]:
    """Findings about a command line that Megatron's own parser reads at one version."""
    found = [_problem(problem, megatron_core) for problem in parsed.problems]
    for field in dict.fromkeys(parsed.repeated):
        message = f"{field} is given more than once with different values; the last one wins"
        found.append(compose_diagnostic("PP906", message, field=field, stage="parse"))
    return tuple(found)


def engine_parse_findings(parsed: Parsed, vllm: str) -> tuple[Diagnostic, ...]:
    """Findings about a command line that vLLM's own parser reads at one version."""
    found = [
        _found(
            problem, *(why_unknown_to_vllm(problem.flag, vllm) if _unread(problem) else ((), ()))
        )
        for problem in parsed.problems
    ]
    for field in dict.fromkeys(parsed.repeated):
        message = f"{field} is given more than once with different values; the last one wins"
        found.append(compose_diagnostic("PP906", message, field=field, stage="parse"))
    return tuple(found)


def framework_parse_findings(
    parsed: Parsed, framework: str, megatron_core: str
) -> tuple[Diagnostic, ...]:
    """Findings about the command line of an RL framework; some drop what they do not know."""
    behaviour = framework_behaviours()[framework]
    found = []
    for problem in parsed.problems:
        if problem.kind == "unknown" and behaviour.unknown_flags == "ignored":
            found.append(
                compose_diagnostic(
                    "PP921",
                    problem.message,
                    UNKNOWN,
                    field=problem.flag,
                    source=(behaviour.source,),
                    stage="parse",
                )
            )
        else:
            found.append(_problem(problem, megatron_core))
    return tuple(found)


def _unread(problem: Problem) -> bool:
    return problem.kind == "unknown"


def _problem(problem: Problem, megatron_core: str) -> Diagnostic:
    because: tuple[Because, ...] = ()
    fix: tuple[Fix, ...] = ()
    if problem.kind == "unknown":
        because, fix = why_unknown(problem.flag, megatron_core)
    return _found(problem, because, fix)


def _found(problem: Problem, because: tuple[Because, ...], fix: tuple[Fix, ...]) -> Diagnostic:
    return compose_diagnostic(
        PROBLEM_CODES[problem.kind],
        problem.message,
        UNKNOWN,
        field=problem.field or problem.flag,
        because=because,
        fix=fix,
        stage="parse",
    )


@lru_cache(maxsize=1024)
def why_unknown(flag: str, megatron_core: str) -> tuple[tuple[Because, ...], tuple[Fix, ...]]:
    """Why a flag is not there, and what may have been meant."""
    options: Mapping[str, Option] = parser_at(megatron_core)
    known = absent_flags().get(flag)
    because = (Because(known.reason),) if known is not None else ()
    if known is not None and known.use:
        return because, (Fix(known.use),)
    close = get_close_matches(flag, options, n=2, cutoff=0.75)
    fix = (Fix(f"did you mean {' or '.join(close)}?"),) if close else ()
    return because, fix


@lru_cache(maxsize=1024)
def why_unknown_to_vllm(flag: str, vllm: str) -> tuple[tuple[Because, ...], tuple[Fix, ...]]:
    """An argument that another release has, or what may have been meant."""
    for arg in engine_args().values():
        if arg.flag == flag and vllm not in arg.versions:
            why = f"vLLM has {flag} in {arg.versions} only" + (f": {arg.note}" if arg.note else "")
            return (Because(why),), (Fix(f"remove {flag}"),)
    close = get_close_matches(flag, options_at(vllm), n=2, cutoff=0.75)
    return (), (Fix(f"did you mean {' or '.join(close)}?"),) if close else ()
