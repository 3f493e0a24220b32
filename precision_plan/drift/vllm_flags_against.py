"""vLLM's arguments in the sources against those of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.drift.changes import Change, about_precision
from precision_plan.drift.modules import Found
from precision_plan.drift.values import Computed, plain
from precision_plan.drift.vllm_against import Compared
from precision_plan.drift.vllm_kwargs import KwargsReader
from precision_plan.drift.vllm_parser import EngineFlag, ParserReader
from precision_plan.facts.vllm import EngineArg, engine_args_at, kv_cache_dtypes
from precision_plan.facts.vllm_flags import flag_names, flag_spans

_NONE = "None"
_KV = "--kv-cache-dtype"


def compare_arguments(reader: ParserReader, vllm: str, whole: bool) -> Compared:
    """Arguments that appeared, vanished or changed.

    Args:
        whole: whether the parser of ``vllm serve`` was read, and not the engine's part alone.
    """
    result = Compared(count=len(reader.flags))
    found = {name: flag for flag in reader.flags for name in flag.flag.flags}
    known = engine_args_at(vllm)
    spellings = {name for name in found if not name.startswith("--no-")}
    if whole:
        result.changes += _names(spellings, found, vllm)
    else:
        unseen = sorted(flag_names(vllm) - spellings)
        result.gap("arguments: these sources have only the engine's part of the parser", unseen)
    keyless = []
    for argument in known.values():
        flag = found.get(argument.flag)
        if flag is None:
            if not whole or argument.flag not in flag_names(vllm):
                result.changes.append(_vanished(argument))
            continue
        if argument.kind != "json_key":
            result.changes += _compare(argument, flag, vllm)
        elif flag.dataclass is None:
            keyless.append(f"{argument.flag} {argument.key}")
        else:
            result.changes += _key(argument, flag, flag.dataclass, reader.kwargs, vllm)
    result.gap("entries of arguments that take any JSON object", keyless)
    unread = [item.source for item in reader.unread]
    result.gap("arguments whose names or options are built at run time", unread)
    result.gap("options of arguments that are worked out at run time", _worked_out(known, found))
    return result


def _names(found: set[str], flags: Mapping[str, EngineFlag], vllm: str) -> Iterator[Change]:
    names = flag_names(vllm)
    for name in sorted(names - found):
        source = flag_spans()[name][-1].source
        yield Change("vanished", "flag", name, about_precision(name), fact_source=source)
    for name in sorted(found - names):
        flag = flags[name]
        spans = " and ".join(str(run.versions) for run in flag_spans().get(name, ()))
        yield Change(
            "appeared",
            "flag",
            name,
            about_precision(name),
            sources=_described(flag),
            at=flag.flag.source,
            note=f"in the facts for {spans}, not for {vllm}" if spans else None,
        )


def _described(flag: EngineFlag) -> dict[str, Any]:
    shown = {
        "kind": flag.kind,
        "type": flag.flag.type,
        "choices": _listed(flag.flag.choices),
        "default": _listed(flag.flag.default),
        "deprecated": flag.deprecated or None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def _vanished(known: EngineArg) -> Change:
    return Change("vanished", "flag", known.flag, True, fact_source=known.source)


def _compare(known: EngineArg, flag: EngineFlag, vllm: str) -> Iterator[Change]:
    names = flag_names(vllm)
    ours_too = sorted(name for name in known.aliases if name in names)
    others = (name for name in flag.flag.flags if name != known.flag)
    aliases = sorted(name for name in others if not name.startswith("--no-"))
    aspects: list[tuple[str, Any, Any, bool]] = [
        ("kind", known.kind, flag.kind, known.kind == flag.kind),
        ("default", known.default, flag.flag.default, _same(known.default, flag.flag.default)),
        ("aliases", ours_too, aliases, ours_too == aliases),
    ]
    choices = flag.flag.choices
    if known.flag == _KV and choices is not None:
        ours: tuple[str, ...] | None = kv_cache_dtypes(vllm)
    else:
        ours = known.choices
    aspects.append(("choices", _listed(ours), _listed(choices), _same_choices(ours, choices)))
    for aspect, our_value, their_value, same in aspects:
        if not same and not isinstance(their_value, Computed):
            yield _changed(known, aspect, our_value, their_value, flag.flag.source)


def _key(
    known: EngineArg, flag: EngineFlag, owner: Found, kwargs: KwargsReader, vllm: str
) -> Iterator[Change]:
    """An entry of an argument that is read into a configuration class."""
    field = kwargs.field(owner, known.key or "")
    if field is None:
        label = f"{known.flag} {known.key}"
        yield Change("vanished", "flag", label, True, fact_source=known.source, at=flag.flag.source)
        return
    choices = kwargs.choices(field)
    if choices is not None and not isinstance(choices, Computed):
        texts = [str(item) for item in choices]
        if set(texts) != set(known.choices or ()):
            yield _changed(known, "choices", list(known.choices or ()), texts, field.source)
    elif choices is None and known.choices is not None and not known.is_open(vllm):
        yield _changed(known, "choices", list(known.choices), None, field.source)


def _changed(known: EngineArg, aspect: str, ours: Any, theirs: Any, at: str) -> Change:
    name = known.flag if known.key is None else f"{known.flag} {known.key}"
    return Change(
        "changed",
        "flag",
        name,
        True,
        aspect=aspect,
        facts=_listed(ours),
        sources=_listed(theirs),
        at=at,
        fact_source=known.source,
    )


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, Computed):
        return True
    theirs, ours = plain(theirs), plain(ours)
    return bool(ours == theirs) and isinstance(ours, bool) is isinstance(theirs, bool)


def _same_choices(ours: tuple[str, ...] | None, theirs: tuple[str, ...] | Computed | None) -> bool:
    if isinstance(theirs, Computed):
        return True
    if ours is None or theirs is None:
        return ours is theirs
    return set(ours) == {name for name in theirs if name != _NONE}


def _worked_out(known: Mapping[str, EngineArg], found: Mapping[str, EngineFlag]) -> Iterator[str]:
    for argument in known.values():
        flag = found.get(argument.flag)
        if flag is None or argument.kind == "json_key":
            continue
        for aspect in ("default", "choices"):
            if isinstance(getattr(flag.flag, aspect), Computed):
                yield f"{argument.flag}: {aspect}"


def _listed(value: Any) -> Any:
    if isinstance(value, Computed):
        return str(value)
    return [item for item in value if item != _NONE] if isinstance(value, tuple) else value
