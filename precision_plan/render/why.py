"""The answer of ``why`` as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from precision_plan.plan.mask import Mask
from precision_plan.plan.origin import UNKNOWN
from precision_plan.render._findings import finding, setting
from precision_plan.render._layout import Style, columns_of, hanging, printable, wrap
from precision_plan.render.json import diagnostic

if TYPE_CHECKING:
    from precision_plan.plan.derivation import Step
    from precision_plan.plan.diagnostic import Because
    from precision_plan.plan.history import Word
    from precision_plan.plan.origin import Origin
    from precision_plan.plan.tracing import Choice, Effect, FieldTrace, Why

WHY_FORMATS = ("text", "json")
SCHEMA_VERSION = 1

_LABEL = 14  # the column in which texts start
_WHERE = 44  # the column in which positions stand when the text leaves room


def render_why(why: Why, format: str, *, width: int = 80, color: bool = False) -> str:
    """Render in one of :data:`WHY_FORMATS`; ends with a newline.

    Raises:
        ValueError: if there is no such format.
    """
    mask = Mask.of(why.plan, why.lowering)
    if format == "text":
        return _Text(mask, width, Style(color)).answer(why)
    if format == "json":
        return json.dumps(_data(why, mask), indent=2) + "\n"
    raise ValueError(f"there is no format {format!r}; known: {', '.join(WHY_FORMATS)}")


# Text -----------------------------------------------------------------------------------------
class _Text:
    """Lays an answer out."""

    def __init__(self, mask: Mask, width: int, style: Style) -> None:
        self.mask = mask
        self.width = width
        self.style = style
        self.last = ""

    def answer(self, why: Why) -> str:
        if why.diagnostics:
            blocks = [finding(each, self.mask, self.width, self.style) for each in why.diagnostics]
        else:
            blocks = [self._head(why), *(self._field(each, why) for each in why.fields)]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    def _safe(self, text: str) -> str:
        return printable(self.mask.text(text))

    def _shown(self, name: str, value: Any) -> str:
        return printable(setting(self.mask.named(name.rpartition(".")[2], value)))

    def _row(self, label: str, text: str, where: str = "") -> list[str]:
        """One line of a block; a label that stands above already is not repeated."""
        plain = "" if label == self.last else f"  {label}"
        self.last = label
        if where:
            gap = max(_WHERE - _LABEL - columns_of(text), 2)
            together = f"{text}{' ' * gap}{where}"
            if _LABEL + columns_of(together) > self.width:
                together = f"{text}  {where}"
            text = together
        return hanging(plain, text, self.width, indent=_LABEL, painted=self.style("dim", plain))

    def _head(self, why: Why) -> list[str]:
        """What a flag, a variable or a group is; a field needs no more than its own block."""
        if why.kind == "field":
            return []
        if why.kind == "group":
            return self._group(why)
        lines = [self.style("title", self._safe(why.subject))]
        for effect in why.effects:
            lines += self._effect(effect, "is")
        if not why.effects and not any(each.unknown for each in why.fields):
            what = "the command line" if why.kind == "flag" else "the environment"
            lines += self._row("is", f"not part of {what} of this plan")
        elif not why.effects:
            lines += self._row("is", "not known before the run")
        for seen in why.seen:
            shown = "not set" if seen.value is None else self._shown(why.subject, seen.value)
            lines += self._row("seen by", f"{seen.role}: {shown}")
            if seen.because is not None:
                lines += self._row("seen by", f"because {seen.because}  [{seen.source}]")
        if not why.fields and not why.effects:
            lines += self._row("", "no plan field holds it")
        return lines

    def _group(self, why: Why) -> list[str]:
        if why.choice is None:
            return [f"{self.style('title', self._safe(why.subject))}: no choice is made"]
        word = why.choice.heard
        name = self._safe(why.subject)
        shown = (
            f"{name}: no choice is made" if word.removed else f"{name}: {self._choices(word.value)}"
        )
        lines = [self.style("title", shown)]
        lines += self._row(
            "removed by" if word.removed else "chosen by",
            self._layer(word.origin),
            self._position(word.origin),
        )
        for other in reversed(why.choice.overridden):
            lines += self._row(
                "instead of", self._choices(other.value), self._position(other.origin)
            )
        return lines

    def _choices(self, value: Any) -> str:
        return self._safe(setting(value))

    def _field(self, trace: FieldTrace, why: Why) -> list[str]:
        self.last = ""
        name = self._safe(trace.field)
        if trace.heard is None and trace.unknown:
            lines = [f"{self.style('title', name)} is not known before the run"]
            for word in why.open:
                what = f"{self._safe(word.text)} may hold any arguments"
                lines += self._row("because", what, self._position(word.origin))
        elif trace.heard is None:
            lines = [f"{self.style('title', name)} is not set in any layer"]
            if trace.overridden:
                lines = [f"{self.style('title', name)} is not set any more"]
        else:
            shown = self._shown(trace.field, trace.heard.value)
            lines = self._title(f"{name} = {shown}")
            if trace.refused:
                lines[-1] += " (refused)"
            if trace.unknown:
                lines[-1] += " (not known before the run)"
            lines += self._set_by(trace)
            for branch in why.decisions:
                lines += self._row("", self._safe(branch.text), self._position(branch.origin))
        lines += self._overridden(trace)
        lines += self._derived(trace)
        for effect in trace.effects:
            lines += self._effect(effect, "lowers to", trace.field)
        for role in trace.roles:
            lines += self._row("decides", f"{role.name}: {self._safe(role.dtype)}")
        for layer in trace.layers:
            last = "" if layer.first == layer.last else f" to {layer.last}"
            what = self._safe(", ".join(layer.modules) or "all modules")
            lines += self._row(
                "decides",
                f"{layer.block} layers {layer.first}{last}, {what}: {layer.resolved.format}",
            )
        for found in trace.findings:
            head = f"{found.severity}[{found.id}] {found.slug}"
            lines += self._row("finding", f"{head}: {self._safe(found.message)}")
        if trace.unknown:
            lines += self._row("lowers to", "not known")
        elif not trace.effects and not trace.roles and not trace.layers and trace.heard is not None:
            lines += self._row("lowers to", "no setting of its own; rules and other fields read it")
        return lines

    def _title(self, text: str) -> list[str]:
        first, *rest = wrap(text, self.width)
        lines = wrap(" ".join(rest), self.width - 4) if rest else []
        return [self.style("title", first), *(self.style("title", f"    {line}") for line in lines)]

    def _set_by(self, trace: FieldTrace) -> list[str]:
        assert trace.heard is not None
        origin = trace.heard.origin
        lines = self._row("set by", self._layer(origin), self._position(origin))
        if trace.written is not None:
            lines += self._row("written", self._safe(trace.written))
        if trace.choice is not None:
            word = trace.choice.heard
            what = f"{trace.choice.group}: {self._choices(word.value)}"
            lines += self._row("chosen by", self._safe(what), self._position(word.origin))
            for other in reversed(trace.choice.overridden):
                what = f"{trace.choice.group}: {self._choices(other.value)}"
                lines += self._row("instead of", self._safe(what), self._position(other.origin))
        return lines

    def _overridden(self, trace: FieldTrace) -> list[str]:
        lines: list[str] = []
        for word in reversed(trace.overridden):
            where = self._position(word.origin)
            if word.removed:
                lines += self._row("removed by", self._layer(word.origin), where)
            else:
                text = f"{self._shown(trace.field, word.value)}, set by {self._layer(word.origin)}"
                lines += self._row("instead of", text, where)
        return lines

    def _derived(self, trace: FieldTrace) -> list[str]:
        lines: list[str] = []
        for step in trace.derived:
            value = "none" if step.value is None else self._shown(trace.field, step.value)
            source = f"  [{step.source}]" if step.source else ""
            label = "replaced by" if step.kind == "replaced" else step.kind
            lines += self._row(label, f"{value}: {self._safe(step.because)}{self._safe(source)}")
        if trace.heard is None and not trace.derived and not trace.unknown:
            lines += self._row("default", "none is known: the value counts as unknown")
        return lines

    def _effect(self, effect: Effect, label: str, field: str = "") -> list[str]:
        item, reason = effect.item, effect.item.reason
        value = self.mask.named(item.name, item.value)
        joint = "=" if effect.target.startswith("Ray") else " "
        shown = item.name if value is True else f"{item.name}{joint}{setting(value)}"
        lines = self._row(label, f"{effect.target}: {self._safe(shown)}")
        if reason.fact is not None:
            lines += self._row(label, f"because {self._safe(reason.text)}  [{reason.fact}]")
        elif not field and reason.field is not None:
            lines += self._row("from", self._safe(reason.field))
        return lines

    def _layer(self, origin: Origin) -> str:
        return self._safe(origin.layer) or "a defaults list"

    def _position(self, origin: Origin) -> str:
        return "" if origin == UNKNOWN else self._safe(str(origin))


# JSON -----------------------------------------------------------------------------------------
def _data(why: Why, mask: Mask) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "recipe": mask.text(why.recipe),
        "subject": mask.text(why.subject),
        "kind": why.kind,
        "choice": None if why.choice is None else _choice(why.choice, mask),
        "lowered": [_effect(each, mask) for each in why.effects],
        "seen": [
            {
                "role": each.role,
                "value": mask.named(why.subject, each.value),
                "because": each.because,
                "source": each.source,
            }
            for each in why.seen
        ],
        "decisions": [_decision(each, mask) for each in why.decisions],
        "open": [_decision(each, mask) for each in why.open],
        "fields": [_field(each, mask) for each in why.fields],
        "diagnostics": [diagnostic(each, mask) for each in why.diagnostics],
    }


def _field(trace: FieldTrace, mask: Mask) -> dict[str, Any]:
    return {
        "field": mask.text(trace.field),
        "set": trace.heard is not None,
        "refused": trace.refused,
        "unknown": trace.unknown,
        **(
            {"value": None, "layer": None, "file": None, "line": None, "column": None}
            if trace.heard is None
            else _word(trace.heard, trace.field, mask)
        ),
        "written": None if trace.written is None else mask.text(trace.written),
        "choice": None if trace.choice is None else _choice(trace.choice, mask),
        "overridden": [
            {**_word(word, trace.field, mask), "removed": word.removed} for word in trace.overridden
        ],
        "derived": [_step(step, trace.field, mask) for step in trace.derived],
        "lowered": [_effect(each, mask) for each in trace.effects],
        "roles": [{"name": role.name, "dtype": role.dtype} for role in trace.roles],
        "layers": list(_layers(trace)),
        "findings": [diagnostic(each, mask) for each in trace.findings],
    }


def _decision(found: Because, mask: Mask) -> dict[str, Any]:
    origin = found.origin
    return {
        "text": mask.text(found.text),
        "file": None if origin == UNKNOWN else mask.text(origin.file),
        "line": origin.line or None,
        "column": origin.column or None,
    }


def _word(word: Word, field: str, mask: Mask) -> dict[str, Any]:
    origin = word.origin
    return {
        "value": mask.named(field.rpartition(".")[2], word.value),
        "layer": mask.text(origin.layer) or None,
        "file": None if origin == UNKNOWN else mask.text(origin.file),
        "line": origin.line or None,
        "column": origin.column or None,
    }


def _choice(choice: Choice, mask: Mask) -> dict[str, Any]:
    words: Sequence[Word] = choice.overridden
    return {
        "group": choice.group,
        **_word(choice.heard, "", mask),
        "overridden": [_word(word, "", mask) for word in words],
    }


def _step(step: Step, field: str, mask: Mask) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "value": mask.named(field.rpartition(".")[2], step.value),
        "because": mask.text(step.because),
        "source": step.source,
    }


def _effect(effect: Effect, mask: Mask) -> dict[str, Any]:
    item = effect.item
    return {
        "target": effect.target,
        "name": item.name,
        "value": mask.named(item.name, item.value),
        "reason": mask.text(item.reason.text),
        "field": item.reason.field,
        "source": item.reason.fact,
    }


def _layers(trace: FieldTrace) -> Iterator[dict[str, Any]]:
    for row in trace.layers:
        yield {
            "block": row.block,
            "first": row.first,
            "last": row.last,
            "modules": list(row.modules),
            "format": row.resolved.format,
        }
