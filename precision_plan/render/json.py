"""Data for programs: the plan with its lowering, or a list of findings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from precision_plan.plan import SCHEMA_VERSION, UNKNOWN
from precision_plan.plan.diagnostic import SEVERITIES
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic, Item, Lowering, Origin
    from precision_plan.plan.compiled import Compiled, LintReport, Preflight


def plan(compiled: Compiled) -> str:
    """A compiled recipe: ``lowered`` is ``null`` if the input could not be read."""
    mask = Mask.of(compiled.plan, compiled.lowering)
    lowering = compiled.lowering
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "recipe": mask.text(compiled.name),
            "fingerprint": compiled.fingerprint,
            "plan": mask.data(compiled.plan.settings()),
            "diagnostics": [diagnostic(found, mask) for found in compiled.diagnostics],
            "summary": _summary(compiled.diagnostics, compiled.rules_checked, compiled.unchecked),
            "lowered": None if lowering is None else _lowered(lowering, mask),
            "roles": [] if lowering is None else _roles(lowering, mask),
            "layers": [] if lowering is None else _layers(lowering, mask),
        }
    )


def lint(report: LintReport) -> str:
    """Findings over files, and their number by severity."""
    mask = Mask()
    summary = _summary(report.diagnostics, report.rules_checked, report.unchecked)
    data = {
        "schema_version": SCHEMA_VERSION,
        "diagnostics": [diagnostic(found, mask) for found in report.diagnostics],
        "summary": {
            **summary,
            "files": list(map(mask.text, report.files)),
            "skipped": list(map(mask.text, report.skipped)),
            **_baseline(report, mask),
        },
    }
    if report.fixes is not None:
        from precision_plan.render._fixes import fix_data

        data.update(fix_data(report.fixes))
    return _dump(data)


def preflight(report: Preflight) -> str:
    """What was seen, what was not, and the findings that rest on it."""
    mask = Mask()
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "recipe": report.name,
            "seen": {field: mask.text(words) for field, words in report.seen.items()},
            "unseen": list(report.unseen),
            "legal_tensor_parallel_sizes": report.legal_tensor_parallel_sizes,
            "legal_expert_parallel_sizes": report.legal_expert_parallel_sizes,
            "diagnostics": [diagnostic(found, mask) for found in report.diagnostics],
            "summary": _summary(report.diagnostics, report.rules_checked, report.unchecked),
        }
    )


def diagnostic(found: Diagnostic, mask: Mask) -> dict[str, Any]:
    """One finding; ``file``, ``line`` and ``column`` are ``null`` where they are not known."""
    return {
        "id": found.id,
        "slug": found.slug,
        "severity": found.severity,
        "message": mask.text(found.message),
        **_position(found.origin, mask),
        "field": found.field,
        "because": [
            {
                "text": mask.text(premise.text),
                "field": premise.field,
                **_position(premise.origin, mask),
            }
            for premise in found.because
        ],
        "fix": [
            {
                "text": mask.text(fix.text),
                "edits": mask.data(fix.edits),
                "applicability": fix.applicability,
            }
            for fix in found.fix
        ],
        "source": list(found.source),
        "docs": found.docs,
        "stage": found.stage,
        "resolved": mask.data(found.resolved),
    }


def _position(origin: Origin, mask: Mask) -> dict[str, Any]:
    return {
        "file": None if origin == UNKNOWN else mask.text(origin.file),
        "line": origin.line or None,
        "column": origin.column or None,
    }


def _summary(
    diagnostics: Sequence[Diagnostic], rules: int, unchecked: Mapping[str, Iterable[str]]
) -> dict[str, Any]:
    counts = {
        f"{severity}s" if severity != "advice" else severity: sum(
            1 for found in diagnostics if found.severity == severity
        )
        for severity in SEVERITIES
    }
    return {
        **counts,
        "rules": rules,
        "unchecked": {id: list(needs) for id, needs in sorted(unchecked.items())},
    }


def _baseline(report: LintReport, mask: Mask) -> dict[str, Any]:
    """What a baseline did; nothing if there is none."""
    used = report.baseline
    if used is None:
        return {}
    told = {"file": mask.text(used.file), "hidden": len(used.hidden), "gone": used.gone}
    return {"baseline": told if used.recorded is None else {**told, "recorded": used.recorded}}


def _lowered(lowering: Lowering, mask: Mask) -> dict[str, Any]:
    megatron, engine, vllm = lowering.megatron, lowering.transformer_engine, lowering.vllm
    ray, checkpoint = lowering.ray, lowering.checkpoint
    return {
        "megatron": {
            "argv": mask.argv(megatron.argv),
            "env": mask.data(megatron.env),
            "settings": mask.data(megatron.settings),
            "files": mask.data(megatron.files),
            "items": _items(megatron.items, mask),
        },
        "transformer_engine": {
            "recipe": engine.recipe,
            "kwargs": mask.data(engine.kwargs),
            "env": mask.data(engine.env),
            "items": _items(engine.items, mask),
        },
        "ray": {
            "runtime_env": mask.data(ray.runtime_env),
            "roles": mask.data(ray.roles),
            "train_env_vars": mask.data(ray.train_env_vars),
            "items": _items(ray.items, mask),
        },
        "vllm": {
            "args": mask.data(vllm.args),
            "argv": mask.argv(vllm.argv),
            "passthrough": mask.argv(vllm.passthrough),
            "env": mask.data(vllm.env),
            "items": _items(vllm.items, mask),
        },
        "checkpoint": {
            "quantization_config": mask.data(checkpoint.quantization_config),
            "ignore": mask.data(checkpoint.ignore),
            "tensors": mask.data(checkpoint.tensors),
            "items": _items(checkpoint.items, mask),
        },
    }


def _items(items: Iterable[Item], mask: Mask) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "value": mask.named(item.name, item.value),
            "reason": mask.text(item.reason.text),
            "field": item.reason.field,
            "source": item.reason.fact,
        }
        for item in items
    ]


def _roles(lowering: Lowering, mask: Mask) -> list[dict[str, Any]]:
    return [
        {
            "name": role.name,
            "dtype": role.dtype,
            "bytes_per_element": role.bytes_per_element,
            "origin": mask.text(role.origin),
        }
        for role in lowering.roles
    ]


def _layers(lowering: Lowering, mask: Mask) -> list[dict[str, Any]]:
    """Rows of the layer map; no modules means all of them, a ``null`` format is unknown."""
    return [
        {
            "block": row.block,
            "first": row.first,
            "last": row.last,
            "modules": list(row.modules),
            "format": row.resolved.format,
            "evaluation": row.resolved.evaluation,
            "reason": mask.text(row.resolved.because),
            "field": row.resolved.field,
        }
        for row in lowering.layers
    ]


def _dump(data: Mapping[str, Any]) -> str:
    # ASCII only: a terminal or log that this is printed to must not act on what values contain.
    return json.dumps(data, indent=2) + "\n"
