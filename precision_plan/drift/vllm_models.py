"""Models of vLLM that keep a recurrent state, in the sources against the families of the facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from precision_plan.drift.changes import Change
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Values
from precision_plan.drift.vllm_against import Compared
from precision_plan.facts.vllm import Architecture, architectures

_FOLDER = "vllm.model_executor.models"
_REGISTRY = "vllm/model_executor/models/registry.py"
_TABLES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
_STATE = frozenset({"HasInnerState", "IsHybrid"})
_HOPS = 8
_CLASS = re.compile(r"^class (\w+)\(([^:]*?)\):", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Model:
    """A registered architecture; ``recurrent`` is ``None`` if its class was not found."""

    architecture: str
    recurrent: bool | None
    at: str


def read_models(modules: Modules, values: Values) -> dict[str, Model] | None:
    """The registered architectures that generate text; ``None`` if no table can be read."""
    module = modules.at(_REGISTRY)
    if module is None:
        return None
    scope = Scope(module)
    likely = _likely(modules)
    found: dict[str, Model] = {}
    for name in _TABLES:
        table = module.definitions.get(name)
        if not isinstance(table, ast.Dict):
            continue
        for key, value in zip(table.keys, table.values, strict=True):
            architecture = values.of(key, scope) if key is not None else None
            place = values.of(value, scope)
            if isinstance(architecture, str) and isinstance(place, tuple) and len(place) == 2:
                state = _recurrent(modules, str(place[0]), str(place[1]), likely)
                found[architecture] = Model(architecture, state, scope.where(value))
    return found or None


def _likely(modules: Modules) -> frozenset[str]:
    """Names of classes that inherit a state by the words of their text.

    Most models keep none; only the files of these are worth parsing.
    """
    texts = (modules.tree.text(path) for path in modules.tree.under("vllm", ".py"))
    bases = [
        (name, set(re.findall(r"\w+", words)))
        for text in texts
        for name, words in _CLASS.findall(text)
    ]
    known: set[str] = set(_STATE)
    grown = True
    while grown:
        more = {name for name, words in bases if words & known} - known
        known |= more
        grown = bool(more)
    return frozenset(known)


def _recurrent(
    modules: Modules, module_name: str, class_name: str, likely: frozenset[str]
) -> bool | None:
    dotted = (f"{_FOLDER}.{module_name}", module_name)
    paths = [name.replace(".", "/") + end for name in dotted for end in (".py", "/__init__.py")]
    path = next((path for path in paths if path in modules.tree), None)
    if path is None:
        return None
    if class_name not in likely:
        named = re.search(rf"\b{re.escape(class_name)}\b", modules.tree.text(path))
        return False if named else None
    module = modules.at(path)
    cls = modules.find(class_name, Scope(module)) if module else None
    return _inherits(modules, cls, _HOPS) if isinstance(cls, Found) else None


def _inherits(modules: Modules, cls: Found, hops: int) -> bool:
    if not isinstance(cls.node, ast.ClassDef) or not hops:
        return False
    for base in cls.node.bases:
        if ast.unparse(base).rpartition(".")[2] in _STATE:
            return True
        found = modules.find_expression(base, cls.scope)
        if isinstance(found, Found) and _inherits(modules, found, hops - 1):
            return True
    return False


def compare_models(found: Mapping[str, Model]) -> Compared:
    """Architectures that keep a state and are in no family, or the other way round."""
    result = Compared(count=len(found))
    families = [row for row in architectures() if row.recurrent_state]
    for model in found.values():
        family = next((row for row in families if _in(row, model)), None)
        if model.recurrent and family is None:
            result.changes.append(_changed(model, ["no recurrent state"], ["recurrent state"]))
        elif model.recurrent is False and family is not None:
            change = _changed(model, ["recurrent state"], ["no recurrent state"], family.source)
            result.changes.append(change)
    lost = (row.prefix for row in families if not any(_in(row, one) for one in found.values()))
    result.gap("families of the facts that these sources do not have", lost)
    result.gap("models whose classes were not found", _unread(found))
    return result


def _in(row: Architecture, model: Model) -> bool:
    return model.architecture.startswith(row.prefix)


def _unread(found: Mapping[str, Model]) -> Iterator[str]:
    return (model.architecture for model in found.values() if model.recurrent is None)


def _changed(
    model: Model, facts: list[str], sources: list[str], fact_source: str | None = None
) -> Change:
    return Change(
        "changed",
        "model family",
        model.architecture,
        True,
        aspect="state",
        facts=facts,
        sources=sources,
        at=model.at,
        fact_source=fact_source,
    )
