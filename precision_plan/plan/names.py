"""What a word means in one plan: a plan field, a group, a command-line flag or a variable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from precision_plan.facts.env_vars import env_vars
from precision_plan.facts.frameworks import (
    RL_FRAMEWORKS,
    FrameworkFlag,
    engine_passthrough,
    framework_flags,
)
from precision_plan.facts.megatron import MegatronFlag, megatron_flags
from precision_plan.facts.megatron_parser import other_flags
from precision_plan.facts.megatron_shape import megadlm_command_line, shape_flags
from precision_plan.facts.vllm import engine_args
from precision_plan.facts.vllm_env_names import vllm_env_names
from precision_plan.plan.base import Section
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.precision_plan import SECTIONS, PrecisionPlan

Kind = Literal["field", "group", "flag", "variable"]


class UnknownName(LookupError):
    """Nothing of this name is known; ``near`` is the name that was probably meant."""

    def __init__(self, name: str, near: str | None = None) -> None:
        super().__init__(f"nothing is known of {name!r}")
        self.near = near


@dataclass(frozen=True, slots=True)
class Subject:
    """What was asked for: ``name`` as the stack spells it, and the plan fields behind it."""

    kind: Kind
    name: str
    fields: tuple[str, ...]


def subject_of(text: str, plan: PrecisionPlan, groups: Collection[str] = ()) -> Subject:
    """Read ``text``: ``section.name``, a name without its section, ``--flag`` or ``VARIABLE``.

    Raises:
        UnknownName: if nothing of this name is known.
    """
    word = text.strip()
    if word.startswith("-"):
        return _flag(word.partition("=")[0], plan)
    if "." in word:
        return _field(word)
    if word in SECTIONS or word in groups:
        return Subject("group", word, tuple(_set_fields(plan, word)))
    if word.isupper() or _is_variable(word, plan):
        return _variable(word, plan)
    fields = tuple(field for field in all_fields() if field.rpartition(".")[2] == word)
    return Subject("field", word, fields) if fields else _flag(word, plan)


def _set_fields(plan: PrecisionPlan, section: str) -> Iterator[str]:
    return (field for field, _ in plan.set_fields() if field.startswith(f"{section}."))


# Fields ---------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def all_fields() -> tuple[str, ...]:
    """Every plan field, those of nested sections included, in declaration order."""
    return tuple(
        field for name in ("recipe", *SECTIONS) for field in _below(name, _section_at(name))
    )


def _below(prefix: str, section: type[Section] | None) -> Iterator[str]:
    for name in section.model_fields if section is not None else ():
        field = f"{prefix}.{name}"
        yield field
        yield from _below(field, _section_at(field))


@lru_cache(maxsize=1024)
def _section_at(field: str) -> type[Section] | None:
    """The section that a dotted field holds; ``None`` if it holds something else."""
    found = _annotation(field)
    return next((each for each in _choices(found) if _is_section(each)), None)


def _annotation(field: str) -> Any:
    """The annotation of a field; ``None`` if there is no such field."""
    parent, _, name = field.rpartition(".")
    section = PrecisionPlan if not parent else _section_at(parent)
    info = None if section is None else section.model_fields.get(name)
    return None if info is None else info.annotation


def _choices(annotation: Any) -> Iterator[Any]:
    """What ``X | None`` and ``Annotated`` hold."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for each in get_args(annotation):
            yield from _choices(each)
    elif origin is Annotated:
        yield from _choices(get_args(annotation)[0])
    else:
        yield annotation


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _is_open(field: str) -> bool:
    """True if any key may stand below the field."""
    return any(get_origin(each) is Mapping for each in _choices(_annotation(field)))


def _field(word: str) -> Subject:
    known = all_fields()
    parents = word.split(".")
    below = (".".join(parents[:end]) for end in range(2, len(parents)))
    if word in known or any(map(_is_open, below)):
        return Subject("field", word, (word,))
    raise UnknownName(word, _closest(word, known))


# Flags ----------------------------------------------------------------------------------------
def spelt(flag: str) -> str:
    """A flag as its dest would be: without dashes in front, ``_`` for ``-``."""
    return flag.lstrip("-").replace("-", "_")


@lru_cache(maxsize=1)
def _flags() -> tuple[tuple[str, str], ...]:
    """``(flag, plan field)``; the field is empty for a flag that no field holds."""
    found: list[tuple[str, str]] = []
    rows: list[MegatronFlag | FrameworkFlag] = [*megatron_flags(), *shape_flags()]
    rows += megadlm_command_line().values()
    for framework in RL_FRAMEWORKS:
        rows += framework_flags(framework).values()
    for row in (*rows, *other_flags()):
        found += [(flag, row.field) for flag in row.flags]
    for argument in engine_args().values():
        found += [(flag, argument.field) for flag in (argument.flag, *argument.aliases)]
    return tuple(dict.fromkeys(found))


def spellings(field: str) -> frozenset[str]:
    """Every flag and variable of one plan field, as :func:`spelt`."""
    names = {spelt(flag) for flag, owner in _flags() if owner == field}
    variable = FIELD_VARIABLES.get(field)
    return frozenset(names if variable is None else {*names, variable})


def _flag(word: str, plan: PrecisionPlan) -> Subject:
    rule = engine_passthrough(plan.software.framework or "")
    name = spelt(word)
    inner = name
    if rule is not None and name.startswith(prefix := spelt(rule.prefix)):
        inner = name.removeprefix(prefix)
    rows = [(flag, field) for flag, field in _flags() if spelt(flag) in (name, inner)]
    if inner != name:
        rows = [row for row in rows if row[1].startswith("rollout.")]
    extra = [key for key in plan.launch.extra_args or {} if spelt(key) == name]
    fields = [*dict.fromkeys(field for _, field in rows if field)]
    fields += [f"launch.extra_args.{key}" for key in extra]
    if not rows and not extra:
        dashed = word if word.startswith("-") else f"--{word}"
        names = [flag for flag, _ in _flags()] if word.startswith("-") else [*_bare()]
        raise UnknownName(word, _closest(word, names) or _closest(dashed, [f for f, _ in _flags()]))
    return Subject("flag", f"--{name.replace('_', '-')}", tuple(fields))


def _bare() -> Iterable[str]:
    yield from SECTIONS
    yield from (field.rpartition(".")[2] for field in all_fields())


# Variables ------------------------------------------------------------------------------------
def _is_variable(word: str, plan: PrecisionPlan) -> bool:
    """True for a known variable, or one that the plan gives: a few are not in capitals."""
    return word in env_vars() or any(word in (given or {}) for _, given in plan.env.set_items())


def _variable(word: str, plan: PrecisionPlan) -> Subject:
    fields = [field for field, name in FIELD_VARIABLES.items() if name == word]
    fields += [
        f"env.{scope}.{word}" for scope, given in plan.env.set_items() if word in (given or {})
    ]
    known = {*env_vars(), *vllm_env_names()}
    if not fields and word not in known:
        raise UnknownName(word, _closest(word, known))
    return Subject("variable", word, tuple(fields))


def _closest(word: str, names: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(word[:80], tuple(names), n=1, cutoff=0.7)
    return found[0] if found else None
