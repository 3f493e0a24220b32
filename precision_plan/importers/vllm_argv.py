"""Reads the command line of ``vllm serve``: engine arguments -> plan fields and leftovers.

vLLM's parser rewrites a command line before argparse sees it: underscores in names become dashes,
``-O3`` is spelt out, and ``--x.y z`` becomes one JSON object for ``--x``. The same is done here.
Source: vllm@0.33.0:vllm/utils/argparse_utils.py:285-440.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from precision_plan.facts.vllm import absent_flags
from precision_plan.facts.vllm_online import (
    Layers,
    online_keys,
    online_shorthands,
    online_specs,
)
from precision_plan.facts.vllm_options import is_release, object_keys, object_values, options_at
from precision_plan.facts.vllm_selection import backend_names
from precision_plan.importers.argv import NONE_HIDDEN, Hidden, Parsed, Problem, parse
from precision_plan.importers.converters import human_int

_NAME = re.compile(r"(?<=--)[^\.]*")
_LEVELS = frozenset({"0", "1", "2", "3"})


def parse_engine_arguments(
    argv: Sequence[str], vllm: str, hidden: Mapping[int, Hidden] = NONE_HIDDEN
) -> Parsed:
    """Split ``argv`` (with or without ``vllm serve MODEL`` before it) as vLLM would.

    ``hidden`` is that of :func:`importers.argv.parse`.
    """
    written = list(enumerate(argv))[_before_arguments(argv) :]
    words, problems = _flexible(written)
    parsed = parse(
        [word for _, word in words],
        options_at(vllm),
        abbreviations=True,
        hidden={at: hidden[place] for at, (place, _) in enumerate(words) if place in hidden},
    )
    _replace(parsed, [place for place, _ in words])
    parsed.problems[:0] = problems
    if not is_release(vllm):
        # An argument that another release has cannot be told from a misspelt one, unless it is
        # one of those whose releases are known.
        gone = absent_flags(vllm)
        parsed.problems[:] = [
            each for each in parsed.problems if each.kind != "unknown" or each.flag in gone
        ]
    else:
        _check_objects(parsed)
        _check_online(parsed)
        _check_numbers(parsed)
    _fold(parsed)
    return parsed


def _before_arguments(argv: Sequence[str]) -> int:
    """How many words stand before the arguments: ``vllm``, ``serve`` and the model."""
    count = int(list(argv[:1]) == ["vllm"])
    count += list(argv[count : count + 1]) == ["serve"]
    return count + (len(argv) > count and not argv[count].startswith("-"))


def _replace(parsed: Parsed, places: Sequence[int]) -> None:
    """Turn positions among the words that argparse gets into those of the command line."""
    parsed.problems[:] = [replace(each, index=places[each.index]) for each in parsed.problems]
    for positions in (parsed.indices, parsed.firsts):
        positions.update({name: places[at] for name, at in positions.items()})
    parsed.open[:] = [places[at] for at in parsed.open]
    parsed.left[:] = [places[at] for at in parsed.left]


_Words = list[tuple[int, str]]
"""Words and their positions on the command line."""


def _flexible(argv: _Words) -> tuple[_Words, list[Problem]]:
    """The words that argparse gets, and what cannot even be rewritten."""
    words = _renamed(argv)
    merged: dict[str, dict[str, Any]] = {}
    places: dict[str, int] = {}
    kept: _Words = []
    problems: list[Problem] = []
    index = 0
    while index < len(words):
        place, word = words[index]
        index += 1
        name, equals, value = word.partition("=")
        if not name.startswith("-") or "." not in name or _is_number(word):
            kept.append((place, word))
            continue
        if not equals:
            if index == len(words):
                problems.append(Problem("count", name, f"{name} needs a value", place))
                break
            value = words[index][1]
            index += 1
        if name.endswith("+"):
            name, value = name[:-1], json.dumps(value.split(","))
        flag, *keys = name.split(".")
        _merge(merged.setdefault(flag, {}), _nested(keys, _scalar(value)))
        places.setdefault(flag, place)
    for flag, content in merged.items():
        kept += [(places[flag], flag), (places[flag], json.dumps(content))]
    return kept, problems


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-\d*\.?\d+", word) is not None


def _renamed(argv: _Words) -> _Words:
    words: _Words = []
    for index, (place, word) in enumerate(argv):
        following = argv[index + 1][1] if index + 1 < len(argv) else None
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = _NAME.sub(lambda found: found.group().replace("_", "-"), name, count=1)
            words.append((place, name + equals + value))
        elif word.startswith("-O") and word != "-O":
            level = word[3:] if word[2] == "=" else word[2:]
            words += [(place, "--optimization-level"), (place, level)]
        elif word == "-O" and following in _LEVELS:
            words.append((place, "--optimization-level"))
        else:
            words.append((place, word))
    return words


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_int(text)
    except ValueError:
        return text


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _merge(into: dict[str, Any], update: Any) -> None:
    for key, value in update.items():
        have = into.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            _merge(have, value)
        elif isinstance(value, list) and isinstance(have, list):
            have += value
        else:
            into[key] = value


def _check_objects(parsed: Parsed) -> None:
    """Keys and words that the argument's configuration class refuses while parsing."""
    known, values = object_keys(), object_values()
    for dest, value in [*parsed.others.items(), ("quantization_config", _given_config(parsed))]:
        keys = known.get(dest)
        if keys is None or not isinstance(value, dict):
            continue
        flag = f"--{dest.replace('_', '-')}"
        backend = value.get("backend") if dest == "attention_config" else None
        if isinstance(backend, str) and backend.upper() not in {"AUTO", *backend_names()}:
            message = f"{flag}: vLLM has no attention backend {backend}"
            parsed.problems.append(Problem("choice", flag, message, 0))
        for key, item in value.items():
            rule = values.get((dest, key))
            problem = None if rule is None else rule.refused(item)
            if problem is not None:
                message = f"{flag}: {key} {problem}"
                parsed.problems.append(Problem("choice", flag, message, 0))
            if key not in keys:
                message = f"{flag} has no key {key!r}; known: {', '.join(sorted(keys))}"
                parsed.problems.append(Problem("choice", flag, message, 0))


def _given_config(parsed: Parsed) -> Any:
    return parsed.values.get("rollout.quantization_config")


def _check_numbers(parsed: Parsed) -> None:
    """Numbers in JSON arguments that their classes refuse while the arguments are parsed."""
    config = parsed.others.get("eplb_config")
    if not isinstance(config, dict):
        return
    for key, least in (("num_redundant_experts", 0), ("window_size", 1), ("step_interval", 1)):
        value = config.get(key)
        if type(value) is int and value < least:
            message = f"--eplb-config: {key} is {value}, and at least {least} is needed"
            parsed.problems.append(Problem("choice", "--eplb-config", message, 0))


def _check_online(parsed: Parsed) -> None:
    """Source: vllm@0.33.0:vllm/config/quantization.py:58-190."""
    config = _given_config(parsed)
    problem = _online_problem(config) if isinstance(config, dict) else None
    if problem is not None:
        flag = "--quantization-config"
        parsed.problems.append(Problem("choice", flag, f"{flag}: {problem}", 0))


def _online_problem(config: Mapping[str, Any]) -> str | None:
    for layers in _LAYERS:
        spec = config.get(layers)
        if isinstance(spec, str):
            if spec not in online_specs(layers):
                return f"{layers} takes one of {', '.join(sorted(online_specs(layers)))}"
        elif isinstance(spec, dict):
            for key, value in spec.items():
                if key not in {"weight", "activation"}:
                    return f"{layers} has no key {key!r}"
                if value is not None and value not in tuple(online_keys()):
                    return f"{layers}.{key} takes one of {', '.join(sorted(online_keys()))}"
        elif spec is not None:
            return f"{layers} is neither a text nor an object"
    targets = config.get("targets")
    if targets is None:
        return None
    if not isinstance(targets, dict):
        return "targets is no object"
    if any(value not in tuple(online_shorthands()) for value in targets.values()):
        return f"targets take one of {', '.join(sorted(online_shorthands()))}"
    if config.get("linear") is not None or config.get("moe") is not None:
        return "targets excludes linear and moe"
    return None


_LAYERS: tuple[Layers, ...] = ("linear", "moe")


_FOLDED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "attention_config": (("backend", "rollout.attention_backend"),),
    "kernel_config": (
        ("moe_backend", "rollout.moe_backend"),
        ("linear_backend", "rollout.linear_backend"),
    ),
    "weight_transfer_config": (("backend", "rollout.weight_transfer_backend"),),
    "hf_overrides": (("head_dtype", "rollout.head_dtype"),),
}
"""Keys of JSON arguments that the plan has fields for."""


def _fold(parsed: Parsed) -> None:
    for dest, pairs in _FOLDED.items():
        value = parsed.others.get(dest)
        if not isinstance(value, dict):
            continue
        for key, field in pairs:
            if not isinstance(value.get(key), str):
                continue
            if field == "rollout.attention_backend" and field in parsed.values:
                parsed.others["attention_backend_given"] = True
            parsed.values.setdefault(field, value[key])
