"""Batch linting: one JSON object a line in, one a line out. Part of the pipeline, like ``api``.

A line in: ``{id, framework, versions, gpu or compute_capability, platform, world_size, env, argv,
model_config, quantization_config}``; what is absent is unknown. A line out: ``{id, ok, errors,
warnings, resolved}`` with ``resolved`` in Megatron's dests and values, or in vLLM's where the
framework is ``vllm``: there ``model_config`` is a ``config.json`` and ``argv`` that of ``vllm
serve``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.gpus import gpus
from precision_plan.facts.megatron import DEFAULT_VERSION
from precision_plan.facts.versions import UnknownVersion, version
from precision_plan.importers.findings import (
    engine_parse_findings,
    framework_parse_findings,
    parse_findings,
)
from precision_plan.importers.rows import framework_row, megatron_row, vllm_row
from precision_plan.plan import Diagnostic
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.resolved import resolved
from precision_plan.plan.target import PACKAGES
from precision_plan.rules.base import Context
from precision_plan.rules.engine import check_context

FRAMEWORKS = ("megatron-lm", *RL_FRAMEWORKS, "vllm")
"""Frameworks whose command line can be read so far."""

_STAGES: Mapping[str, str] = {"run": "build"}
"""``build`` stands for everything that fails after the real program's own checks."""

_ENGINE_STAGES: Mapping[str, str] = {"run": "worker", "build": "worker"}
"""The same for vLLM, whose workers build the model."""

_KEYS = frozenset(
    {
        "id",
        "framework",
        "versions",
        "gpu",
        "compute_capability",
        "platform",
        "world_size",
        "env",
        "argv",
        "model_config",
        "quantization_config",
    }
)


class _BrokenRow(ValueError):
    """The line is not a row; the text says what it should be."""


def lint_lines(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield ``(answer line, exit code)`` for every line that is not blank.

    A line that cannot be read gets an answer too (``PP910``), and the next one is read.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = _row(line)
            answer = lint_row(row)
        except _BrokenRow as error:
            broken = compose_diagnostic("PP910", f"line {number}: {error}", stage="parse")
            yield json.dumps(_answer(None, [broken], {})), 2
        else:
            yield json.dumps(answer, default=str), int(not answer["ok"])


def lint_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Check one row; returns the answer as plain data.

    A ``framework`` that only serves has engine arguments in ``argv``, and the answer holds what
    the engine resolves.

    ``ok`` is false if there is any error; each error names the ``stage`` at which the real program
    would notice (``build`` and ``run`` later than argument validation, ``policy`` never).
    """
    if row.get("framework") == "vllm":
        return _lint_engine(row)
    if row.get("framework") in RL_FRAMEWORKS:
        return _lint_framework(row)
    plan, parsed = megatron_row(row)
    megatron_core = plan.software.megatron_core or DEFAULT_VERSION
    context = Context(plan)
    found = [*parse_findings(parsed, megatron_core), *check_context(context).diagnostics]
    return _answer(row.get("id"), found, resolved(context.effective))


def _lint_framework(row: Mapping[str, Any]) -> dict[str, Any]:
    plan, parsed = framework_row(row)
    megatron_core = plan.software.megatron_core or DEFAULT_VERSION
    context = Context(plan)
    found = [
        *framework_parse_findings(parsed, row["framework"], megatron_core),
        *check_context(context).diagnostics,
    ]
    return _answer(row.get("id"), found, resolved(context.effective))


def _lint_engine(row: Mapping[str, Any]) -> dict[str, Any]:
    plan, parsed, checkpoint = vllm_row(row)
    context = Context(plan, checkpoint)
    found = [
        *engine_parse_findings(parsed, plan.software.vllm or ""),
        *check_context(context).diagnostics,
    ]
    values = context.engine.resolved() if context.engine is not None else {}
    return _answer(row.get("id"), found, values, _ENGINE_STAGES)


def _answer(
    id: Any,
    found: Iterable[Diagnostic],
    values: Mapping[str, Any],
    stages: Mapping[str, str] = _STAGES,
) -> dict[str, Any]:
    errors: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []
    for diagnostic in found:
        entry: dict[str, Any] = {
            "id": diagnostic.id,
            "slug": diagnostic.slug,
            "stage": stages.get(diagnostic.stage, diagnostic.stage),
            "field": diagnostic.field,
            "message": diagnostic.message,
        }
        if diagnostic.severity == "error":
            errors.append(entry)
        elif diagnostic.severity == "warning":
            if diagnostic.resolved:
                entry["resolved"] = dict(diagnostic.resolved)
            warnings.append(entry)
    return {
        "id": id,
        "ok": not errors,
        "errors": errors,
        "warnings": warnings,
        "resolved": dict(values),
    }


def _row(line: str) -> Mapping[str, Any]:
    """One parsed line.

    Raises:
        _BrokenRow: if it is not JSON, or a key has the wrong type.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BrokenRow(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise _BrokenRow("not a JSON object")
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise _BrokenRow(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    framework = row.get("framework")
    if framework is not None and framework not in FRAMEWORKS:
        raise _BrokenRow(f"framework {framework!r} is none of {', '.join(FRAMEWORKS)}")
    _check_types(row)
    _check_config(row)
    return row


def _check_config(row: Mapping[str, Any]) -> None:
    config = row.get("model_config")
    if config is not None and not isinstance(config, dict):
        raise _BrokenRow("model_config is not an object")


def _check_types(row: Mapping[str, Any]) -> None:
    argv = row.get("argv")
    if argv is not None and not _texts(argv):
        raise _BrokenRow("argv is not a list of strings")
    for key in ("versions", "env"):
        table = row.get(key)
        if table is None:
            continue
        if not isinstance(table, dict) or not _texts(list(table.values())):
            raise _BrokenRow(f"{key} is not an object of strings")
    if row.get("world_size") is not None and type(row["world_size"]) is not int:
        raise _BrokenRow("world_size is not a whole number")
    for key in ("gpu", "compute_capability", "platform"):
        if row.get(key) is not None and not isinstance(row[key], str):
            raise _BrokenRow(f"{key} is not a string")
    _check_hardware(row.get("gpu"), row.get("compute_capability"), row.get("platform"))
    for name, text in (row.get("versions") or {}).items():
        if name not in PACKAGES:
            raise _BrokenRow(f"versions has no package {name!r}; known: {', '.join(PACKAGES)}")
        try:
            version(text)
        except UnknownVersion as error:
            raise _BrokenRow(f"versions.{name}: {error}") from None


def _check_hardware(gpu: str | None, capability: str | None, platform: str | None) -> None:
    if gpu is not None and gpu not in gpus():
        raise _BrokenRow(f"gpu {gpu!r} is not known; known: {', '.join(gpus())}")
    if capability is not None and not re.fullmatch(r"\d+\.\d", capability):
        raise _BrokenRow(f"compute_capability {capability!r} is not written like 9.0")
    if platform not in (None, "cuda", "rocm"):
        raise _BrokenRow(f"platform {platform!r} is neither cuda nor rocm")


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
