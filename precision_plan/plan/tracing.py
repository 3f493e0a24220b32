"""Why a field has its value, and what comes of it; pure, over what compiling has found already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_plan.facts.frameworks import FrameworkVariable, framework_env
from precision_plan.facts.transformer_engine import te_recipes
from precision_plan.plan.base import Section
from precision_plan.plan.derivation import Step, derivation
from precision_plan.plan.diagnostic import Because, Diagnostic
from precision_plan.plan.history import Word
from precision_plan.plan.layer_map import LayerRange
from precision_plan.plan.lowering import Item, Lowering, Reason, Role
from precision_plan.plan.names import Kind, Subject, spellings, spelt
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import PrecisionPlan


@dataclass(frozen=True, slots=True)
class Effect:
    """One lowered setting and the program that gets it."""

    target: str
    item: Item


@dataclass(frozen=True, slots=True)
class Choice:
    """A group's choice, who made it, and whose choice it replaced (first to last)."""

    group: str
    heard: Word
    overridden: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class FieldTrace:
    """One plan field.

    ``heard`` is the layer that set it, ``None`` if none did; ``written`` its text before ``${...}``
    was resolved. ``overridden`` are earlier layers, first to last; ``choice`` the choice that
    brought the file in. ``derived`` says what a program takes where the plan does not set the
    field, or replaces in silence. ``refused``: the schema does not take the value. ``unknown``: the
    value is not known before the run; that of ``heard`` is how a script writes it.
    """

    field: str
    heard: Word | None
    written: str | None = None
    refused: bool = False
    unknown: bool = False
    overridden: tuple[Word, ...] = ()
    choice: Choice | None = None
    derived: tuple[Step, ...] = ()
    effects: tuple[Effect, ...] = ()
    roles: tuple[Role, ...] = ()
    layers: tuple[LayerRange, ...] = ()
    findings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one process finally sees of a variable; ``None`` is *not set*.

    ``because`` and ``source`` are there where the framework decides.
    """

    role: str
    value: str | None
    because: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The answer about one subject.

    ``effects`` are the lowered settings of that very name (for a flag or variable), ``seen`` the
    variable's value by process, ``choice`` the choice of a group. ``decisions`` are those that lead
    to the launch of a script, ``open`` its words that may hold any arguments. ``diagnostics`` are
    those of a recipe that cannot be read; then there is nothing else.
    """

    recipe: str
    subject: str
    kind: Kind
    plan: PrecisionPlan
    lowering: Lowering | None
    fields: tuple[FieldTrace, ...] = ()
    effects: tuple[Effect, ...] = ()
    seen: tuple[Seen, ...] = ()
    choice: Choice | None = None
    decisions: tuple[Because, ...] = ()
    open: tuple[Because, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What compiling one recipe found.

    ``asked`` are the values as they were written, also those that the schema refused; ``history``,
    ``chosen`` and ``written`` are those of the composition. ``unknown`` are the fields of a script
    that are not known before the run, with their text if one is written.
    """

    recipe: str
    plan: PrecisionPlan
    lowering: Lowering
    diagnostics: Sequence[Diagnostic]
    asked: Mapping[str, Any]
    history: Mapping[str, Sequence[Word]]
    chosen: Mapping[str, Sequence[Word]]
    written: Mapping[str, str]
    unknown: Mapping[str, str | None] = field(default_factory=dict)


def trace(subject: Subject, found: Sources) -> Why:
    """Answer for ``subject``."""
    plan, lowering = found.plan, found.lowering
    effects: tuple[Effect, ...] = ()
    if subject.kind in ("flag", "variable"):
        effects = tuple(_named(subject, lowering))
    fields = dict.fromkeys((*subject.fields, *(each.item.reason.field for each in effects)))
    variable = subject.kind == "variable"
    return Why(
        recipe=found.recipe,
        subject=subject.name,
        kind=subject.kind,
        plan=plan,
        lowering=lowering,
        fields=tuple(
            each for field in fields if field for each in _field_traces(field, subject, found)
        ),
        effects=effects,
        seen=tuple(_seen(subject.name, plan, lowering)) if variable else (),
        choice=_choice(subject.name, found) if subject.kind == "group" else None,
    )


def _seen(name: str, plan: PrecisionPlan, lowering: Lowering) -> Iterator[Seen]:
    """The variable by process; where it is not what was lowered, the framework is the reason."""
    job = lowering.ray.runtime_env.get("env_vars", {}).get(name)
    framework = plan.software.framework or ""
    for role, env in lowering.ray.roles.items():
        value = env.get(name)
        lowered = lowering.ray.train_env_vars.get(name, job) if role == "train_actor" else job
        row = next((row for row in framework_env(framework) if _sets(row, name, role)), None)
        if row is None or value == lowered:
            yield Seen(role, value)
        else:
            does = "removes" if value is None else "sets"
            yield Seen(role, value, f"{framework} {does} it ({row.how})", row.source)


def _sets(row: FrameworkVariable, name: str, role: str) -> bool:
    return row.name == name and role in row.roles


# Fields ---------------------------------------------------------------------------------------
def _field_traces(field: str, subject: Subject, found: Sources) -> Iterator[FieldTrace]:
    """The trace of a field; of a mapping, those of its keys."""
    value = _asked(field, found.asked)
    if isinstance(value, dict) and value:
        for key in value:
            yield from _field_traces(f"{field}.{key}", subject, found)
        for below in _gone_below(field, found):
            yield _field_trace(below, found)
    else:
        yield _field_trace(field, found)


def _gone_below(field: str, found: Sources) -> Iterator[str]:
    for key in found.history:
        if key.startswith(f"{field}.") and _asked(key, found.asked) is None:
            yield key


def _field_trace(field: str, found: Sources) -> FieldTrace:
    plan, lowering = found.plan, found.lowering
    asked = _asked(field, found.asked)
    value = _value(field, plan)
    origin = plan.origin(field)
    unknown = field in found.unknown
    if unknown:
        asked = value = found.unknown[field]
    heard = None if asked is None and value is None else Word(asked, origin)
    refused = asked is not None and value is None
    if heard is not None and not refused:
        heard = Word(value, origin)
    return FieldTrace(
        field=field,
        heard=heard,
        written=found.written.get(field),
        refused=refused,
        unknown=unknown,
        overridden=tuple(found.history.get(field, ())),
        choice=None if heard is None else _choice_of(origin, found),
        derived=() if unknown else _derived(field, plan),
        effects=() if unknown else tuple(_effects(field, lowering, heard is not None)),
        roles=tuple(role for role in lowering.roles if _decides(role.origin, field)),
        layers=tuple(row for row in lowering.layers if row.resolved.field == field),
        findings=tuple(each for each in found.diagnostics if _rests_on(each, field)),
    )


def _asked(field: str, data: Any) -> Any:
    """What layers say of a field; keys of ``env`` and of extra arguments may hold dots."""
    if not field:
        return data
    if not isinstance(data, Mapping):
        return None
    if field in data:
        return data[field]
    head, _, rest = field.partition(".")
    return _asked(rest, data.get(head)) if rest else None


def _value(field: str, plan: PrecisionPlan) -> Any:
    node: Any = plan
    rest = field
    while rest:
        if isinstance(node, Section):
            part, _, rest = rest.partition(".")
            node = getattr(node, part, None)
        elif isinstance(node, Mapping):
            if rest in node:
                return node[rest]
            part, _, rest = rest.partition(".")
            node = node.get(part)
        else:
            return None
    return node


def _derived(field: str, plan: PrecisionPlan) -> tuple[Step, ...]:
    try:
        plan.get(field)
    except KeyError:  # a key of a value that the plan holds as a whole
        return ()
    return derivation(plan, field)


def _decides(text: str, field: str) -> bool:
    return text == field or text.startswith((f"{field} ", f"{field}:"))


def _rests_on(found: Diagnostic, field: str) -> bool:
    fields = (found.field, *(premise.field for premise in found.because))
    return any(each == field or (each or "").startswith(f"{field}.") for each in fields)


# Choices --------------------------------------------------------------------------------------
def _choice(group: str, found: Sources) -> Choice | None:
    said = found.chosen.get(group, ())
    words = [word for word in said if word.value is not None or word.removed]
    return Choice(group, words[-1], tuple(words[:-1])) if words else None


def _choice_of(origin: Origin, found: Sources) -> Choice | None:
    """The choice that brought in the file in which a value stands."""
    group, equals, choice = origin.layer.partition("=")
    made = _choice(group, found) if equals else None
    return made if made is not None and made.heard.value == choice else None


# Effects --------------------------------------------------------------------------------------
def effects_of(lowering: Lowering) -> Iterator[Effect]:
    """Every lowered setting with the program that gets it, in the order of a launch."""
    megatron, engine = lowering.megatron, lowering.transformer_engine
    for item in megatron.items:
        yield Effect("Megatron", item)
    recipe = te_recipes().get(engine.recipe or "")
    if recipe is not None:
        field = f"training.{recipe.selector}"
        yield Effect(
            "Transformer Engine", Item("recipe", recipe.name, Reason("recipe class", field))
        )
    for item in engine.items:
        if item.name not in lowering.ray.runtime_env.get("env_vars", {}):
            yield Effect("Transformer Engine", item)
    for item in lowering.ray.items:
        scope = "Ray"
        if item.name in lowering.ray.train_env_vars:
            scope = "Ray, train actors"
        yield Effect(scope, item)
    for item in lowering.vllm.items:
        yield Effect("vLLM", item)
    for item in lowering.checkpoint.items:
        yield Effect("Checkpoint", item)


def _effects(field: str, lowering: Lowering, is_set: bool) -> Iterator[Effect]:
    """What the field asked for; of a field that is not set, what was written out for it."""
    names = frozenset() if is_set else spellings(field)
    for effect in effects_of(lowering):
        asked = effect.item.reason.field or ""
        by_name = not asked and spelt(effect.item.name) in names and _same_program(effect, field)
        if by_name or asked == field or asked.startswith(f"{field}."):
            yield effect


def _same_program(effect: Effect, field: str) -> bool:
    """Megatron and vLLM share names: ``--attention-backend``, ``--seed``."""
    return (effect.target == "vLLM") == field.startswith("rollout.")


def _named(subject: Subject, lowering: Lowering) -> Iterator[Effect]:
    name = spelt(subject.name)
    for effect in effects_of(lowering):
        item = spelt(effect.item.name)
        if item == name or (effect.target == "vLLM" and f"vllm_{item}" == name):
            yield effect
