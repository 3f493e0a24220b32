"""Puts the schema's refusals into words: what, where, and what was probably meant."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from precision_plan.compose.composition import Composition, origin_of
from precision_plan.compose.overrides import HIDDEN
from precision_plan.compose.suggest import alike, closest, listed, printable
from precision_plan.facts.value_notes import ValueNote, value_notes
from precision_plan.plan.base import Section
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Diagnostic, Fix
from precision_plan.plan.origin import Origin
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.secrets import is_secret

_TYPES = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
    "string_pattern_mismatch": ("a text of the form", "pattern"),
}


SUGGESTION_LIMIT = 100
"""Unknown keys for which the meant one is looked for: a file with more of them is no recipe."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused key or value at ``path`` of the data.

    ``text`` is set where the value is fine once it is taken as it was written (a version number
    that YAML reads as a float). ``invalid`` names the plan fields whose value is not known.
    """

    path: tuple[Any, ...]
    diagnostic: Diagnostic
    invalid: tuple[str, ...] = ()
    text: str | None = None


def refusals(
    error: ValidationError, data: Mapping[str, Any], composition: Composition
) -> Iterator[Refusal]:
    """One refusal for each key that ``error`` is about."""
    grouped: dict[tuple[Any, ...], list[Any]] = {}
    for item in error.errors(include_url=False, include_context=True, include_input=False):
        grouped.setdefault(_path(data, item["loc"]), []).append(item)
    # A list that one alternative takes, but for an entry, is no number either: the entry counts.
    within = {path[:length] for path in grouped for length in range(len(path))}
    for path in within & grouped.keys():
        del grouped[path]
    for count, (path, items) in enumerate(grouped.items()):
        yield _refusal(path, items, data, composition, count < SUGGESTION_LIMIT)


def _path(data: Any, loc: Sequence[Any]) -> tuple[Any, ...]:
    """The part of pydantic's location that leads through the data (it names union arms too)."""
    path: list[Any] = []
    node = data
    for part in loc:
        in_list = isinstance(node, list) and isinstance(part, int) and part < len(node)
        if not in_list and not (isinstance(node, dict) and part in node):
            continue
        node = node[part]
        path.append(part)
    return tuple(path)


def _at(data: Any, path: Iterable[Any]) -> Any:
    for part in path:
        data = data[part]
    return data


def _refusal(
    path: tuple[Any, ...],
    items: Sequence[Any],
    data: Mapping[str, Any],
    composition: Composition,
    suggest: bool,
) -> Refusal:
    value = _at(data, path)
    field = ".".join(map(str, path))
    origin = origin_of(composition.origins, field)
    kinds = {item["type"] for item in items}
    if kinds & {"extra_forbidden", "invalid_key"}:
        near = _probable(path) if suggest else None
        same = near is not None and _is_same_name(path, near) and not _is_set(data, near)
        return _unknown(path, field, value, origin, near, same)
    written = composition.texts.get(field) if isinstance(value, (int, float)) else None
    if "string_type" in kinds and written is not None:
        diagnostic = _wrong_type(field, items, value, origin)
        return Refusal(path, diagnostic, text=written)
    whole = _whole(path)
    named = ".".join(map(str, whole))
    choices = _choices(path)
    note = value_notes().get((named, str(value)))
    if note is not None:
        diagnostic = _noted(note, named, origin)
    elif choices and not isinstance(value, (dict, list)):
        diagnostic = _no_choice(named, value, choices, origin)
    elif len(path) == 1 and kinds & {"model_type", "model_attributes_type"}:
        diagnostic = compose_diagnostic(
            "PP005",
            f"{field} is {_shown(value, field)}; a mapping of keys belongs here",
            origin,
            field=field,
            fix=(Fix(f"write 'key: value' lines below {field}:"),),
        )
    elif kinds & _TYPES.keys():
        diagnostic = _wrong_type(field, items, value, origin)
    else:
        diagnostic = _out_of_bounds(field, items[0], value, origin)
    return Refusal(whole, replace(diagnostic, field=named), (named,))


# -- unknown keys ---------------------------------------------------------------------------


def _is_same_name(path: tuple[Any, ...], near: str) -> bool:
    """True if an unknown key is the field ``near`` in another spelling, and in its place."""
    parent, _, name = near.rpartition(".")
    return parent == ".".join(map(str, path[:-1])) and alike(str(path[-1]), name)


def _is_set(data: Any, field: str) -> bool:
    for part in field.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data is not None


def _unknown(
    path: tuple[Any, ...],
    field: str,
    value: Any,
    origin: Origin,
    near: str | None,
    same: bool,
) -> Refusal:
    what = "section" if len(path) == 1 else "key"
    holder = _model(path[:-1])
    fixes: tuple[Fix, ...]
    if near is not None:
        edits = {field: None, near: value}
        fixes = (Fix(f"did you mean {near}?", edits, "safe" if same else "suggested"),)
    elif holder is not None:
        fixes = (Fix(f"known here: {listed(_keys(holder))}"),)
    else:
        fixes = ()
    diagnostic = compose_diagnostic(
        "PP002", f"the plan has no {what} {printable(field)}", origin, field=field, fix=fixes
    )
    invalid = (near,) if near is not None and near.count(".") == 1 else ()
    return Refusal(path, diagnostic, invalid)


def _probable(path: tuple[Any, ...]) -> str | None:
    """The field that an unknown key was probably meant to be.

    In this order: a flag or variable name of an upstream program, the same key in another
    section, a similar key in this section, a similar key anywhere.
    """
    key = str(path[-1])
    word = key.lstrip("-").removeprefix("vllm-").removeprefix("vllm_").replace("-", "_").lower()
    if len(path) == 1:
        found = _elsewhere(word) or _from_flag(key)
        return found or closest(word, _keys(PrecisionPlan))
    parent = ".".join(map(str, path[:-1]))
    holder = _model(path[:-1])
    siblings = _keys(holder) if holder is not None else ()
    if word in siblings:
        return f"{parent}.{word}"
    if key.isupper() and len(path) == 2:
        return f"env.all.{key}"
    if (found := _elsewhere(word) or _from_flag(key)) is not None:
        return found
    if (near := closest(word, siblings, cutoff=0.7)) is not None:
        return f"{parent}.{near}"
    fields = {name: section for section, name in _fields()}
    near = closest(word, fields, cutoff=0.8)
    return f"{fields[near]}.{near}" if near is not None else None


def _elsewhere(word: str) -> str | None:
    return next((f"{section}.{name}" for section, name in _fields() if name == word), None)


def _from_flag(key: str) -> str | None:
    """The field behind a Megatron flag (``--fp8-format``) or its dest (``fp8``)."""
    from precision_plan.facts.megatron import megatron_flags

    flag_text = "--" + key.lstrip("-").replace("_", "-")
    for flag in megatron_flags():
        if flag.dest == key or flag_text in flag.flags:
            return flag.field
    return None


def _fields() -> Iterator[tuple[str, str]]:
    for section in _keys(PrecisionPlan):
        model = _model((section,))
        for name in _keys(model) if model is not None else ():
            yield section, name


def _keys(model: type[Section]) -> tuple[str, ...]:
    return tuple(name for name in model.model_fields if name != "origins")


# -- refused values -------------------------------------------------------------------------


def _no_choice(field: str, value: Any, choices: tuple[str, ...], origin: Origin) -> Diagnostic:
    near = closest(str(value), choices)
    if near is None:
        fix = Fix("write one of these values")
    else:
        same = isinstance(value, str) and alike(value, near)
        fix = Fix(f"did you mean {near}?", {field: near}, "safe" if same else "suggested")
    return compose_diagnostic(
        "PP003",
        f"{field} does not take {_shown(value, field)}; it takes {listed(choices, limit=24)}",
        origin,
        field=field,
        fix=(fix,),
    )


def _noted(note: ValueNote, field: str, origin: Origin) -> Diagnostic:
    return compose_diagnostic(
        "PP003",
        f"{field} does not take {note.value}: {note.why}",
        origin,
        field=field,
        fix=tuple(Fix(text, edits) for text, edits in note.fix),
        source=note.source,
    )


def _wrong_type(field: str, items: Sequence[Any], value: Any, origin: Origin) -> Diagnostic:
    wanted = " or ".join(
        dict.fromkeys(_TYPES[item["type"]] for item in items if item["type"] in _TYPES)
    )
    fixes: tuple[Fix, ...] = ()
    if isinstance(value, bool) and "a text" in wanted:
        fixes = (Fix('write "1", "0", "true" or "false" in quotes, as the program expects'),)
    elif str(value).lower() in ("true", "false") and "true or false" in wanted:
        fixes = (_without_quotes("write true or false without quotes", field, value, wanted),)
    elif isinstance(value, str) and "number" in wanted and _NUMBER.fullmatch(value):
        fixes = (_without_quotes("write the number without quotes", field, value, wanted),)
    return compose_diagnostic(
        "PP004",
        f"{field} is {_shown(value, field)}; it takes {wanted}",
        origin,
        field=field,
        fix=fixes,
    )


_READERS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "true or false": (re.compile("true|false"), lambda text: text == "true"),
    "a whole number": (re.compile(r"-?(0|[1-9]\d*)"), int),
    "a number": (re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?"), float),
}
"""Texts that can only be meant as a value of a type, and the value."""


def _without_quotes(text: str, field: str, value: Any, wanted: str) -> Fix:
    pattern, read = _READERS.get(wanted, (None, None))
    if pattern is None or read is None or not pattern.fullmatch(str(value).lower()):
        return Fix(text)
    if any(part.isdigit() for part in field.split(".")):  # an item of a list
        return Fix(text)
    return Fix(text, {field: read(str(value).lower())}, "safe")


def _out_of_bounds(field: str, item: Any, value: Any, origin: Origin) -> Diagnostic:
    context = item.get("ctx", {})
    if item["type"] in _BOUNDS:
        words, name = _BOUNDS[item["type"]]
        wanted = f"it takes {words} {context.get(name)}"
    else:
        wanted = str(item["msg"]).lower()
    message = f"{field} is {_shown(value, field)}; {wanted}"
    fix = (Fix("write a value in this range, or remove the key"),)
    return compose_diagnostic("PP003", message, origin, field=field, fix=fix)


def _shown(value: Any, field: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if is_secret(field.rpartition(".")[2]):
        return HIDDEN
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return repr(text) if isinstance(value, str) else text


# -- the schema -----------------------------------------------------------------------------


def _model(path: Sequence[Any]) -> type[Section] | None:
    """The section class at ``path``; ``None`` where the path leads into a value."""
    model: type[Section] = PrecisionPlan
    by_name: type[Section] | None = None  # sections by names that the recipe chooses
    for part in path:
        if by_name is not None:
            model, by_name = by_name, None
            continue
        info = model.model_fields.get(str(part))
        inner, by_name = _inner(info.annotation if info else None)
        if inner is not None:
            model = inner
        elif by_name is None:
            return None
    return model if by_name is None else None


def _inner(annotation: Any) -> tuple[type[Section] | None, type[Section] | None]:
    """The section that a field holds, or the one that it holds by names of the recipe."""
    for arm in _arms(annotation):
        if isinstance(arm, type) and issubclass(arm, Section):
            return arm, None
        values = get_args(arm)[1:] if get_origin(arm) is Mapping else ()
        for value in values:
            if isinstance(value, type) and issubclass(value, Section):
                return None, value
    return None, None


def _choices(path: Sequence[Any]) -> tuple[str, ...]:
    """The values that the field at ``path`` takes, if they are listed."""
    model = _model(path[:-1])
    info = model.model_fields.get(str(path[-1])) if model is not None else None
    if info is None:
        return ()
    return tuple(
        str(choice)
        for arm in _arms(info.annotation)
        if get_origin(arm) is Literal
        for choice in get_args(arm)
    )


def _arms(annotation: Any) -> Iterator[Any]:
    """The alternatives of a type, without ``Annotated`` and ``None``."""
    if get_origin(annotation) is Annotated:
        yield from _arms(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for arm in get_args(annotation):
            yield from _arms(arm)
    elif annotation not in (None, type(None)):
        yield annotation


def _whole(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """``path`` up to the first list: a list is refused as a whole."""
    for index, part in enumerate(path):
        if isinstance(part, int):
            return path[:index]
    return path
