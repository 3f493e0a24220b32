"""What differs between two plans: settings, what they lower to, and what has no effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.plan.lowering import ROLES, Reason
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import SECTIONS
from precision_plan.plan.snapshot import Accepted, Snapshot

TARGETS = (
    "Tensors",
    "Layers",
    "Megatron",
    "Transformer Engine",
    "Environment",
    "Ray",
    "vLLM",
    "Checkpoint",
)
"""What a plan lowers to, in the order in which differences are shown."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One side of a difference; ``origin`` is known of a setting, ``reason`` of an effect."""

    value: Any
    origin: Origin | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``before`` or ``after`` is ``None`` where that side says nothing.

    ``target`` is ``plan``, ``about`` or one of :data:`TARGETS`; ``roles`` are the processes that
    see a variable.
    """

    target: str
    path: Path
    before: Told | None
    after: Told | None
    roles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The dotted name."""
        return ".".join(self.path)

    @property
    def key(self) -> str:
        """The last part of the name, by which secrets are known."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two snapshots and their differences.

    ``plan`` and ``effects`` count; ``about`` (title, source, maturity) does not change what runs.
    ``only_a`` and ``only_b`` are findings of one side alone.
    """

    a: Snapshot
    b: Snapshot
    plan: tuple[Change, ...] = ()
    effects: tuple[Change, ...] = ()
    about: tuple[Change, ...] = ()
    only_a: tuple[Accepted, ...] = ()
    only_b: tuple[Accepted, ...] = ()

    @property
    def differs(self) -> bool:
        """True if something that is run, or the plan that says so, is not the same."""
        return bool(self.plan or self.effects)

    @property
    def effects_known(self) -> bool:
        """False if a side says something that is not known before it runs."""
        return not (self.a.unknown or self.b.unknown)

    @property
    def broken(self) -> bool:
        """True if a side could not be read."""
        return self.a.broken or self.b.broken


def compare(a: Snapshot, b: Snapshot) -> Comparison:
    """Differences from ``a`` to ``b``; a masked side is compared as far as its secrets show."""
    if a.broken or b.broken:
        return Comparison(a, b)
    if a.masked != b.masked:
        a, b = a.hidden(), b.hidden()
    return Comparison(
        a=a,
        b=b,
        plan=tuple(_plan_changes(a, b)),
        effects=() if a.unknown or b.unknown else tuple(_effect_changes(a, b)),
        about=tuple(
            Change("about", path, _told(old), _told(new))
            for path, old, new in _differences(a.about, b.about)
        ),
        only_a=tuple(each for each in a.findings if each not in b.findings),
        only_b=tuple(each for each in b.findings if each not in a.findings),
    )


# Data -----------------------------------------------------------------------------------------
class _Absent:
    """A key that is not there; ``null`` is a value."""


_ABSENT = _Absent()


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Keys and values of nested mappings; a list is one value."""
    if isinstance(node, Mapping) and (node or not path):
        for key, value in node.items():
            yield from leaves(value, (*path, str(key)))
    else:
        yield path, node


def _differences(a: Any, b: Any) -> Iterator[tuple[Path, Any, Any]]:
    """Paths whose values differ, sorted; an absent value is :data:`_ABSENT`."""
    old, new = dict(leaves(a)), dict(leaves(b))
    for path in sorted({*old, *new}):
        before, after = old.get(path, _ABSENT), new.get(path, _ABSENT)
        if not _same(before, after):
            yield path, before, after


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: ``true`` is not ``1``, and ``1`` is not ``1.0``."""
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _told(value: Any, origin: Origin | None = None, reason: Reason | None = None) -> Told | None:
    return None if value is _ABSENT else Told(value, origin, reason)


# Settings -------------------------------------------------------------------------------------
def _plan_changes(a: Snapshot, b: Snapshot) -> Iterator[Change]:
    order = {name: at for at, name in enumerate(SECTIONS)}
    found = sorted(_differences(a.plan, b.plan), key=lambda each: order.get(each[0][0], 99))
    for path, old, new in found:
        before = _told(old, _origin(a, path))
        yield Change("plan", path, before, _told(new, _origin(b, path)))


def _origin(snapshot: Snapshot, path: Path) -> Origin | None:
    for end in range(len(path), 0, -1):
        found = snapshot.origins.get(".".join(path[:end]))
        if found is not None:
            return found
    return None


# Effects --------------------------------------------------------------------------------------
def _effect_changes(a: Snapshot, b: Snapshot) -> Iterator[Change]:
    before, after = effects(a.lowered), effects(b.lowered)
    for target in TARGETS:
        if target == "Environment":
            yield from _environment(a, b)
            continue
        for path, old, new in _differences(before.get(target, {}), after.get(target, {})):
            yield Change(
                target,
                path,
                _told(old, reason=_reason(a, target, path)),
                _told(new, reason=_reason(b, target, path)),
            )


def _reason(snapshot: Snapshot, target: str, path: Path) -> Reason | None:
    return snapshot.reasons.get((target, path[0]))


def effects(lowered: Mapping[str, Any]) -> dict[str, Any]:
    """What each program is told, by :data:`TARGETS` without the environment, as nested mappings."""
    megatron, vllm = lowered.get("megatron", {}), lowered.get("vllm", {})
    engine, checkpoint = lowered.get("transformer_engine", {}), lowered.get("checkpoint", {})
    runtime_env = dict(lowered.get("ray", {}).get("runtime_env", {}))
    runtime_env.pop("env_vars", None)  # what each process sees is compared instead
    flags = dict(megatron.get("flags", {}))
    flags.pop("--train-env-vars", None)
    recipe, model = engine.get("recipe"), vllm.get("model")
    config = checkpoint.get("quantization_config")
    return {
        "Tensors": lowered.get("tensors", {}),
        "Layers": _layers(lowered.get("layers", ())),
        "Megatron": {**flags, **{f"file {k}": v for k, v in megatron.get("files", {}).items()}},
        "Transformer Engine": {
            **({} if recipe is None else {"recipe": recipe}),
            **engine.get("kwargs", {}),
        },
        "Ray": runtime_env,
        "vLLM": {**({} if model is None else {"model": model}), **vllm.get("args", {})},
        "Checkpoint": {
            **({} if config is None else {"quantization_config": config}),
            **{key: checkpoint[key] for key in ("ignore", "tensors") if checkpoint.get(key)},
        },
    }


def _layers(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found = {}
    for row in rows:
        first, last = row.get("first"), row.get("last")
        span = f"{first}" if first == last else f"{first} to {last}"
        modules = ", ".join(row.get("modules") or ()) or "all modules"
        formats = [row.get("format"), row.get("evaluation")]
        shown = formats[0] if formats[0] == formats[1] else formats
        found[f"{row.get('block')} {span}, {modules}"] = shown
    return found


def _environment(a: Snapshot, b: Snapshot) -> Iterator[Change]:
    """Variables that differ, the processes in which they differ alike together."""
    old, new = a.lowered.get("environment", {}), b.lowered.get("environment", {})
    roles = [role for role in ROLES if role in old or role in new]
    names = {name for env in (*old.values(), *new.values()) for name in env}
    for name in sorted(names):
        groups: dict[tuple[str, str], list[str]] = {}
        values: dict[tuple[str, str], tuple[Any, Any]] = {}
        for role in roles:
            pair = (_value(old, role, name), _value(new, role, name))
            if not _same(*pair):
                key = (repr(pair[0]), repr(pair[1]))
                groups.setdefault(key, []).append(role)
                values[key] = pair
        for key, seen in groups.items():
            before, after = values[key]
            yield Change(
                "Environment",
                (name,),
                _told(before, reason=_reason(a, "Environment", (name,))),
                _told(after, reason=_reason(b, "Environment", (name,))),
                tuple(seen),
            )


def _value(environment: Mapping[str, Mapping[str, Any]], role: str, name: str) -> Any:
    return environment.get(role, {}).get(name, _ABSENT)
