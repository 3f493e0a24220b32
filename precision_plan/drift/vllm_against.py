"""vLLM's lists, arguments, methods and backends in the sources against those of the facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_plan.drift.changes import Change, Gap, about_precision
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, Values
from precision_plan.drift.vllm_classes import BackendClass, Methods
from precision_plan.facts.vllm import (
    QuantName,
    architectures,
    engine_args,
    kv_cache_dtypes,
    mamba_dtypes,
    quant_names,
)
from precision_plan.facts.vllm_backends import attention_backends, backend_names
from precision_plan.facts.vllm_quant import quant_methods

_FOLDER = "vllm"
_SPELLINGS = {"half": "float16", "float": "float32"}
ONLINE = "online"


@dataclass(slots=True)
class Compared:
    """Changes, how many things were looked at, and what was not compared."""

    changes: list[Change] = field(default_factory=list)
    count: int = 0
    gaps: list[Gap] = field(default_factory=list)

    def gap(self, what: str, names: Iterable[str]) -> None:
        """Note names that were not compared, if there are any."""
        listed = tuple(names)
        if listed:
            self.gaps.append(Gap(what, listed))


def _quantization(vllm: str) -> tuple[str, ...]:
    return tuple(name for name, row in quant_names().items() if vllm in row.versions)


def _dtype(vllm: str) -> tuple[str, ...]:
    return engine_args()["rollout.dtype"].at(vllm).choices or ()


_LISTS: Mapping[str, tuple[str, Callable[[str], tuple[str, ...]]]] = {
    "CacheDType": ("--kv-cache-dtype", kv_cache_dtypes),
    "MambaDType": ("--mamba-ssm-cache-dtype", mamba_dtypes),
    "ModelDType": ("--dtype", _dtype),
    "QuantizationMethods": ("--quantization", _quantization),
}
"""``NAME = Literal[...]`` of the sources, its flag, and the names that the facts have for it."""


def compare_choices(
    modules: Modules, values: Values, vllm: str
) -> tuple[list[Change], int, list[str]]:
    """Lists that changed, how many were found, and the names of those that were not."""
    changes: list[Change] = []
    absent: list[str] = []
    for name, (flag, known) in _LISTS.items():
        found = _find_literal(modules, name)
        texts = [] if found is None else _texts(found, values)
        if found is None or not texts:
            absent.append(f"{name} ({flag})")
        elif set(texts) != set(known(vllm)):
            at = found.scope.where(found.node)
            changes.append(_changed("choices", flag, None, list(known(vllm)), texts, at))
    return changes, len(_LISTS) - len(absent), absent


def compare_methods(found: Methods, vllm: str) -> Compared:
    """Registered methods, and what their classes demand."""
    result = Compared()
    known = {name: row for name, row in quant_names().items() if vllm in row.versions}
    unlike, undescribed = [], []
    for name, row in known.items():
        cls = found.classes.get(name)
        if cls is None:
            if name not in (found.shorthands or ()):
                unlike.append(name)
            continue
        result.count += 1
        method = quant_methods().get(row.resolves_at(vllm))
        if method is None or vllm not in method.versions:
            undescribed.append(name)
            continue
        least = method.min_capability(vllm)
        text = None if least is None else least[0] * 10 + least[1]
        pairs = (
            ("min_capability", text, cls.min_cc),
            ("act_dtypes", sorted(method.act_dtypes), _spelled(cls.act_dtypes)),
        )
        for aspect, ours, theirs in pairs:
            if not isinstance(theirs, Computed) and ours != theirs:
                change = _changed("method", name, aspect, ours, theirs, cls.at, method.source)
                result.changes.append(change)
    result.changes += _lists(found, known, vllm)
    result.gap("methods without a class among these sources", (*unlike, *found.unread))
    result.gap("methods that the facts do not describe at this version", undescribed)
    result.gap("methods whose least capability or dtypes are worked out", _worked_out(found, known))
    result.gap("lists of methods that these sources do not declare", _missing(found))
    return result


def _missing(found: Methods) -> Iterator[str]:
    lists = (
        ("DEPRECATED_QUANTIZATION_METHODS", found.deprecated),
        ("shorthands of online quantization", found.shorthands),
        ("RocmPlatform.supported_quantization", found.rocm),
    )
    return (name for name, listed in lists if listed is None)


def _worked_out(found: Methods, known: Mapping[str, QuantName]) -> Iterator[str]:
    for name, cls in found.classes.items():
        parts = (cls.min_cc, cls.act_dtypes)
        if name in known and any(isinstance(part, Computed) for part in parts):
            yield f"{name} ({cls.at})"


def _lists(found: Methods, known: Mapping[str, QuantName], vllm: str) -> Iterator[Change]:
    """The lists beside the classes: deprecated methods, those of ROCm, online shorthands."""
    listed = (
        ("deprecated", found.deprecated, [n for n, r in known.items() if _in(r.deprecated, vllm)]),
        ("rocm", found.rocm, [n for n, r in known.items() if _in(r.rocm, vllm)]),
    )
    for aspect, theirs, ours in listed:
        if theirs is not None and set(theirs) & set(known) != set(ours):
            yield _changed("method", "lists", aspect, sorted(ours), sorted(theirs), found.at)
    shorthands = set(found.shorthands or ())
    online = {name for name, row in known.items() if row.kind == "online" and name != ONLINE}
    if found.shorthands is not None and not (online <= shorthands <= set(known)):
        yield _changed("method", "lists", ONLINE, sorted(online), sorted(shorthands), found.at)


def _in(span: Any, vllm: str) -> bool:
    return span is not None and vllm in span


def _spelled(dtypes: tuple[str, ...] | Computed) -> list[str] | Computed:
    if isinstance(dtypes, Computed):
        return dtypes
    return sorted(_SPELLINGS.get(name, name) for name in dtypes)


def compare_backends(found: Mapping[str, BackendClass], vllm: str) -> Compared:
    """Names of attention backends, and the dtypes that their classes declare."""
    result = Compared(count=len(found))
    known = {name: row for name, row in backend_names().items() if vllm in row.versions}
    undeclared = []
    for name, row in known.items():
        if name not in found:
            change = Change("vanished", "attention backend", name, True, fact_source=row.source)
            result.changes.append(change)
    for name, cls in found.items():
        if name not in known:
            listed = [] if isinstance(cls.kv_dtypes, Computed) else list(cls.kv_dtypes)
            change = Change("appeared", "attention backend", name, True, sources=listed, at=cls.at)
            result.changes.append(change)
            continue
        if isinstance(cls.kv_dtypes, Computed) or isinstance(cls.dtypes, Computed):
            undeclared.append(name)
            continue
        for what, theirs in (("dtypes", cls.dtypes), ("kv", cls.kv_dtypes)):
            ours = known[name].declared(vllm, "dtypes" if what == "dtypes" else "kv")
            if set(ours or ()) != set(theirs):
                shown = list(ours or ())
                args = ("attention backend", name, what, shown, list(theirs), cls.at)
                result.changes.append(_changed(*args, known[name].source))
    result.changes += _taken(found, vllm)
    result.gap("attention backends whose classes declare no dtypes", undeclared)
    if not any(vllm in row.versions for row in attention_backends()):
        what = "what attention backends take by capability: the facts have it for other releases"
        result.gaps.append(Gap(what))
    return result


def _taken(found: Mapping[str, BackendClass], vllm: str) -> Iterator[Change]:
    """KV dtypes that a selection was seen to take, and that the class does not declare."""
    for row in attention_backends():
        cls = found.get(row.name)
        if cls is None or vllm not in row.versions or isinstance(cls.kv_dtypes, Computed):
            continue
        taken = frozenset().union(*(takes.kv for takes in row.takes))
        if not taken <= set(cls.kv_dtypes):
            listed = (sorted(taken), list(cls.kv_dtypes), cls.at)
            yield _changed("attention backend", row.name, "takes", *listed, row.source)


def compare_float16(found: tuple[str, ...], at: str) -> Iterator[Change]:
    """Model types that are refused in float16.

    A family that the release does not have may be among those of the facts.
    """
    ours = [name for row in architectures() if not row.float16 for name in row.model_types]
    if not set(found) <= set(ours):
        yield _changed("model family", "float16", "refused", sorted(ours), sorted(found), at)


def _changed(
    subject: Any,
    name: str,
    aspect: str | None,
    facts: Any,
    sources: Any,
    at: str | None,
    fact_source: str | None = None,
) -> Change:
    return Change(
        "changed",
        subject,
        name,
        subject != "flag" or about_precision(name),
        aspect=aspect,
        facts=facts,
        sources=sources,
        at=at,
        fact_source=fact_source,
    )


def _find_literal(modules: Modules, name: str) -> Found | None:
    """The first ``NAME = Literal[...]`` of the tree."""
    declared = re.compile(rf"^{name}(?:: TypeAlias)? = (?:typing\.)?Literal\[", re.MULTILINE)
    for path in modules.tree.under(_FOLDER, ".py"):
        module = modules.at(path) if declared.search(modules.tree.text(path)) else None
        found = modules.find(name, Scope(module)) if module else None
        if isinstance(found, Found) and isinstance(found.node, ast.Subscript):
            return found
    return None


def _texts(found: Found, values: Values) -> list[str]:
    """The texts of ``Literal[...]``; empty if one of them is computed."""
    assert isinstance(found.node, ast.Subscript)
    inner = found.node.slice
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    texts = [values.of(item, found.scope) for item in items]
    return [] if any(isinstance(text, Computed) for text in texts) else [str(t) for t in texts]
