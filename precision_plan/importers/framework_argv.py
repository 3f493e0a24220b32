"""The command line of vime, slime or miles: Megatron's, the framework's own, and the engine's.

The engine's arguments carry a prefix (``--vllm-``, ``--sglang-``). vime and slime drop a flag that
nobody registers in silence; miles hands it to Megatron's strict parser. The lists of the
frameworks' own flags are not complete, so that a flag counts as misspelt only where it is close to
a known one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from precision_plan.facts.framework_flags import other_framework_flags
from precision_plan.facts.frameworks import (
    EnginePassthrough,
    FrameworkFlag,
    engine_passthrough,
    framework_flags,
)
from precision_plan.facts.megatron_parser import (
    Kind,
    Option,
    either,
    options_of_other_parsers,
    parser_at,
    parser_of_any_version,
    spellings,
)
from precision_plan.facts.megatron_shape import megadlm_command_line
from precision_plan.facts.sglang_flags import sglang_flags
from precision_plan.facts.vllm import DEFAULT_VERSION as DEFAULT_VLLM
from precision_plan.facts.vllm_options import options_at
from precision_plan.importers.argv import Parsed, Problem, parse

_KINDS: Mapping[str, Kind] = {"store": "value", "store_true": "true", "boolean": "true"}
_CLOSE = 0.9


def parse_framework_arguments(
    argv: Sequence[str], framework: str, megatron_core: str, vllm: str
) -> Parsed:
    """Split ``argv``; ``problems`` of kind ``unknown`` are near misses of known flags only."""
    options = _options(framework, megatron_core, vllm)
    parsed = parse(argv, options)
    parsed.problems[:] = [
        problem
        for each in parsed.problems
        if (problem := _near_miss(each, framework, options)) is not None
    ]
    return parsed


def _near_miss(problem: Problem, framework: str, options: Mapping[str, Option]) -> Problem | None:
    if problem.kind != "unknown":
        return problem
    passthrough = engine_passthrough(framework)
    if passthrough is not None and passthrough.engine == "sglang":
        bare = "--" + problem.flag.removeprefix(passthrough.prefix)
        known = sglang_flags().get(bare) if bare != problem.flag else None
        if known is not None:
            message = f"{framework} sets {known.dest} itself and does not register {problem.flag}"
            return replace(problem, message=message)
    close = get_close_matches(problem.flag, options, n=1, cutoff=_CLOSE)
    if not close:
        return None
    return replace(problem, message=f"{framework} has no {problem.flag}; {close[0]} is close")


@lru_cache(maxsize=32)
def options_of(
    frameworks: tuple[str, ...], megatron_core: str | None, vllm: str | None
) -> Mapping[str, Option]:
    """What the parser of one of ``frameworks`` takes; a version that is not known may be any."""
    found: dict[str, Option] = dict(options_of_other_parsers())
    for framework in frameworks:
        for flag, option in _options(framework, megatron_core, vllm or DEFAULT_VLLM).items():
            found[flag] = either(found.get(flag), option)
        if framework == "megadlm":
            for row in megadlm_command_line().values():
                found.update((option.flag, option) for option in spellings(row))
    return MappingProxyType(found)


@lru_cache(maxsize=16)
def _options(framework: str, megatron_core: str | None, vllm: str) -> Mapping[str, Option]:
    found = dict(parser_of_any_version() if megatron_core is None else parser_at(megatron_core))
    for own in framework_flags(framework).values():
        found.update({option.flag: option for option in _own(own)})
    for row in other_framework_flags(framework):
        for flag in row.flags:
            kind = "false" if row.action == "store_false" else _KINDS.get(row.action, "value")
            dest = row.flags[0].lstrip("-").replace("-", "_")
            found.setdefault(flag, Option(flag, dest, kind, row.nargs, row.type, None, None))
            if row.action == "boolean":
                no = f"--no-{flag.lstrip('-')}"
                found.setdefault(no, Option(no, dest, "false", None, None, None, None))
    passthrough = engine_passthrough(framework)
    if passthrough is not None and passthrough.engine == "vllm":
        for flag, option in options_at(vllm).items():
            if flag.startswith("--"):
                name = passthrough.prefix + flag[2:]
                found[name] = option._replace(flag=name, dest=f"vllm_{option.dest}")
    elif passthrough is not None:
        for option in _sglang(passthrough):
            found.setdefault(option.flag, option)
    return MappingProxyType(found)


def _sglang(passthrough: EnginePassthrough) -> list[Option]:
    """SGLang's arguments with the prefix; the value of one is kept under its own spelling."""
    options = []
    for row in sglang_flags().values():
        # Whether the size of tensor parallelism is registered depends on SGLang's release.
        if row.dest in passthrough.dropped and row.dest != "tp_size":
            continue
        flag = passthrough.prefix + row.flag[2:]
        dest = flag[2:].replace("-", "_")
        kind: Kind = "true" if row.kind == "optional" else row.kind
        options.append(Option(flag, dest, kind, row.nargs, row.type, row.choices, None))
        if row.kind == "optional":
            options.append(Option(f"--no-{flag[2:]}", dest, "false", None, None, None, None))
    return options


def _own(own: FrameworkFlag) -> list[Option]:
    kind = _KINDS[own.action]
    options = []
    for flag in own.flags:
        dest = flag[2:].replace("-", "_")
        nargs: Any = own.nargs
        choices = own.choices
        options.append(Option(flag, dest, kind, nargs, own.type, choices, own.field))
        if own.action == "boolean":
            no = f"--no-{flag[2:]}"
            options.append(Option(no, dest, "false", None, None, None, own.field))
    return options
