"""One side of a comparison: what a plan says and lowers to, as plain data.

A recipe, a script and a lock file all end here; a lock is a snapshot that was written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from precision_plan.facts.megatron import catalogued_version
from precision_plan.facts.vllm import DEFAULT_VERSION
from precision_plan.plan.codes import is_broken_input
from precision_plan.plan.mask import Mask
from precision_plan.plan.target import PACKAGES, Target
from precision_plan.plan.unknown import settled

if TYPE_CHECKING:
    from precision_plan.plan.compiled import Compiled
    from precision_plan.plan.diagnostic import Diagnostic
    from precision_plan.plan.layer_map import LayerRange
    from precision_plan.plan.lowering import Lowering, Reason
    from precision_plan.plan.origin import Origin
    from precision_plan.plan.precision_plan import PrecisionPlan

Kind = Literal["recipe", "script", "lock"]
UNKNOWN_VALUE = "(not known before the run)"
"""Stands for, or behind, a value that a script takes from a variable or a command."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A finding by its identity, without its words."""

    id: str
    severity: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A plan and its lowering as JSON data.

    ``about`` says what the recipe is (title, source, maturity) and has no effect. ``origins`` and
    ``reasons`` are empty for a lock. With ``masked`` the secrets in the data are hidden already,
    else ``mask`` hides them. ``unknown`` are fields that a script sets to something that is not
    known before it runs; what the plan lowers to is not known then. ``broken``: the input could
    not be read, and ``diagnostics`` say why.
    """

    name: str
    kind: Kind
    plan: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    lowered: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    findings: tuple[Accepted, ...] = ()
    fingerprint: str = ""
    mask: Mask = field(default_factory=Mask, compare=False)
    masked: bool = False
    origins: Mapping[str, Origin] = field(default_factory=dict)
    reasons: Mapping[tuple[str, str], Reason] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """True if there is nothing to compare."""
        return any(map(is_broken_input, self.diagnostics))

    def hidden(self) -> Snapshot:
        """The same with its secrets hidden."""
        if self.masked:
            return self
        plan, lowered = self.mask.data(self.plan), self.mask.data(self.lowered)
        return replace(self, plan=plan, lowered=lowered, masked=True)


def snapshot_of(compiled: Compiled, kind: Kind = "recipe") -> Snapshot:
    """What ``compiled`` says and lowers to."""
    unknown = tuple(compiled.plan.unknown_fields())
    plan, lowering = settled(compiled.plan), compiled.lowering
    if lowering is None:
        return Snapshot(compiled.name, kind, diagnostics=compiled.diagnostics)
    settings = plan.canonical()
    about = settings.pop("recipe", {})
    origins = dict(plan.origins)
    if extra := settings.get("launch", {}).get("extra_args"):
        settings["launch"]["extra_args"] = {
            _spelt(key, origins): _number(value) if kind == "script" else value
            for key, value in extra.items()
        }
    for name in unknown:
        section, _, key = name.partition(".")
        written = compiled.unknown.get(name)
        shown = f"{written} {UNKNOWN_VALUE}" if written else UNKNOWN_VALUE
        settings.setdefault(section, {})[key] = shown
    return Snapshot(
        name=compiled.name,
        kind=kind,
        plan=settings,
        about={key: value for key, value in about.items() if key != "name"},
        lowered=lowered_data(lowering),
        versions=versions_of(plan),
        findings=accepted(compiled.diagnostics),
        fingerprint=compiled.fingerprint,
        mask=Mask.of(plan, lowering),
        origins=origins,
        reasons=dict(_reasons(lowering)),
        diagnostics=compiled.diagnostics,
        unknown=unknown,
    )


def _spelt(key: str, origins: dict[str, Origin]) -> str:
    """One spelling for ``--eval-iters``, ``eval-iters`` and ``eval_iters``, with its position."""
    name = key.lstrip("-").replace("_", "-")
    origin = origins.get(f"launch.extra_args.{key}")
    if origin is not None:
        origins.setdefault(f"launch.extra_args.{name}", origin)
    return name


def _number(value: Any) -> Any:
    """A script holds texts; a number in one is the number that a recipe would hold."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            found = kind(value)
        except ValueError:
            continue
        return found if isfinite(found) else value
    return value


def accepted(diagnostics: Sequence[Diagnostic]) -> tuple[Accepted, ...]:
    """Identities of findings, each once, sorted."""
    found = {Accepted(each.id, each.severity, each.field) for each in diagnostics}
    return tuple(sorted(found, key=lambda each: (each.id, each.field or "", each.severity)))


def versions_of(plan: PrecisionPlan) -> dict[str, Mapping[str, str | None]]:
    """Per package the declared version, and the one whose facts are used in its place."""
    target = Target.of(plan)
    stands_in = {
        "megatron_core": catalogued_version(target.package("megatron_core")),
        "vllm": target.package("vllm") or DEFAULT_VERSION,
    }
    found: dict[str, Mapping[str, str | None]] = {}
    for package in PACKAGES:
        declared = target.package(package)
        assumed = stands_in.get(package, declared)
        if assumed is not None:
            found[package] = {"declared": declared, "assumed": assumed}
    return found


def lowered_data(lowering: Lowering) -> dict[str, Any]:
    """The lowering as JSON data: what each program is told, without reasons.

    Command lines are flags with their values, because the order of flags says nothing.
    """
    engine, vllm, checkpoint = lowering.transformer_engine, lowering.vllm, lowering.checkpoint
    model = vllm.argv[0] if vllm.argv and not vllm.argv[0].startswith("-") else None
    data = {
        "megatron": {
            "flags": flags_of(lowering.megatron.argv),
            "files": lowering.megatron.files,
        },
        "transformer_engine": {"recipe": engine.recipe, "kwargs": engine.kwargs},
        "ray": {
            "runtime_env": lowering.ray.runtime_env,
            "train_env_vars": lowering.ray.train_env_vars,
        },
        "environment": lowering.ray.roles,
        "vllm": {
            "model": model,
            "args": vllm.args,
            "passthrough": flags_of(vllm.passthrough),
        },
        "checkpoint": {
            "quantization_config": checkpoint.quantization_config,
            "ignore": checkpoint.ignore,
            "tensors": checkpoint.tensors,
        },
        "tensors": {role.name: role.dtype for role in lowering.roles},
        "layers": [_layer(row) for row in lowering.layers],
    }
    found: dict[str, Any] = _plain(data)
    return found


def flags_of(argv: Sequence[str]) -> dict[str, Any]:
    """A command line as flags with their values: ``true`` for a switch, a list for several.

    A flag that is given twice keeps both, in order.
    """
    found: dict[str, list[list[str]]] = {}
    values: list[str] = []
    for word in argv:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            values = [value] if equals else []
            found.setdefault(flag, []).append(values)
        else:
            values.append(word)
    return {flag: _flag_value(given) for flag, given in found.items()}


def _flag_value(given: list[list[str]]) -> Any:
    shown = [values[0] if len(values) == 1 else values or True for values in given]
    return shown[0] if len(shown) == 1 else shown


def _layer(row: LayerRange) -> dict[str, Any]:
    return {
        "block": row.block,
        "first": row.first,
        "last": row.last,
        "modules": row.modules,
        "format": row.resolved.format,
        "evaluation": row.resolved.evaluation,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _reasons(lowering: Lowering) -> Iterator[tuple[tuple[str, str], Reason]]:
    targets = {
        "Megatron": lowering.megatron.items,
        "Transformer Engine": lowering.transformer_engine.items,
        "Environment": lowering.ray.items,
        "vLLM": lowering.vllm.items,
        "Checkpoint": lowering.checkpoint.items,
    }
    for target, items in targets.items():
        for item in items:
            yield (target, item.name), item.reason
