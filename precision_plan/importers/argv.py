"""Splits a command line as Python's argparse would, against a table of options.

Only the splitting is emulated, with its rules about ``=``, values that begin with a dash, value
counts, types and choices; nothing is executed and unknown options are reported, not guessed.
Megatron's parsers do not accept abbreviations (``allow_abbrev=False`` in every version); those of
vime, slime and miles do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from precision_plan.facts.megatron_parser import Option
from precision_plan.importers.converters import CONVERTERS, KINDS

_NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")

ProblemKind = Literal["unknown", "choice", "type", "count", "stray", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that the real parser would refuse. ``index`` is the position in argv."""

    kind: ProblemKind
    flag: str
    message: str
    index: int
    field: str | None = None


@dataclass(slots=True)
class Parsed:
    """What a command line says.

    ``values`` are plan fields, ``others`` the dests that the plan has no field for; ``indices``
    gives the argv position of the option that set either (the last one wins). ``repeated`` lists
    fields that were given more than once with different values, ``firsts`` where the first of
    them stands.

    Of a line with words that are not known, ``unknown`` are the fields and dests whose value is
    not, and ``open`` the positions of words that may hold any arguments. ``left`` are the
    positions of words that belong to no option.
    """

    values: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    firsts: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    open: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


class Hidden(NamedTuple):
    """What is known of a word that is not known as a whole: the text before its unknown part.

    ``splits``: it may turn out to be no word, or several.
    """

    before: str
    splits: bool = False

    @property
    def opaque(self) -> bool:
        """True if not even its first character is known."""
        return not self.before


NONE_HIDDEN: Mapping[int, Hidden] = MappingProxyType({})


class _Refused(Exception):
    """The real converter would raise; the text is its message."""


def parse(
    argv: Sequence[str],
    options: Mapping[str, Option],
    *,
    abbreviations: bool = False,
    hidden: Mapping[int, Hidden] = NONE_HIDDEN,
) -> Parsed:
    """Split ``argv`` (without the program's name) against ``options``.

    ``hidden`` are the positions of words that are not known as a whole; ``argv`` has their source
    text (``${X}``) there.
    """
    parsed = Parsed()
    index, count, end_of_open = 0, len(argv), -1
    while index < count:
        token = argv[index]
        option = options.get(token)
        explicit: str | None = None
        if option is None:
            if hidden and index in hidden and _hides_option(hidden[index], parsed, index):
                index += 1
                end_of_open = index if parsed.open[-1:] == [index - 1] else -1
                continue
            if token == "--" or not _looks_like_option(token, options):
                if index == end_of_open:  # it may be a value of an option in the word before
                    end_of_open += 1
                else:
                    message = f"{token!r} belongs to no option"
                    parsed.problems.append(Problem("stray", token, message, index))
                parsed.left.append(index)
                index += 1
                continue
            name, equals, value = token.partition("=")
            option = options.get(name)
            explicit = value if equals else None
            if option is None and abbreviations:
                option = _abbreviated(name, options, index, parsed)
            if option is None:
                parsed.problems.append(
                    Problem("unknown", name, f"{name} is no option of this parser", index)
                )
                start, index = index, index + 1
                while index < count and not _looks_like_option(argv[index], options):
                    index += 1  # its values, if it has any, are not strays of their own
                parsed.left += range(start, index)
                continue
        index = _take(argv, index, option, explicit, options, parsed, hidden)
    return parsed


def _hides_option(word: Hidden, parsed: Parsed, index: int) -> bool:
    """True for a hidden word, where an option could begin, that does not show which one it is."""
    if "=" in word.before and word.before.startswith("-"):
        return False
    parsed.left.append(index)
    if word.opaque:
        parsed.open.append(index)
    return True


def _looks_like_option(token: str, options: Mapping[str, Option]) -> bool:
    if not token.startswith("-") or token == "-":
        return False
    if token.partition("=")[0] in options:
        return True
    if _NEGATIVE_NUMBER.match(token):
        return False
    return " " not in token


def _abbreviated(
    name: str, options: Mapping[str, Option], index: int, parsed: Parsed
) -> Option | None:
    if not name.startswith("--"):
        return None
    matches = [option for flag, option in options.items() if flag.startswith(name)]
    if len(matches) > 1:
        shown = ", ".join(sorted(option.flag for option in matches)[:4])
        parsed.problems.append(Problem("ambiguous", name, f"{name} could be any of {shown}", index))
    return matches[0] if len(matches) == 1 else None


def _take(
    argv: Sequence[str],
    index: int,
    option: Option,
    explicit: str | None,
    options: Mapping[str, Option],
    parsed: Parsed,
    hidden: Mapping[int, Hidden],
) -> int:
    """Read the values of ``option`` at ``index``; returns the index after them."""
    if option.kind != "value":
        if explicit is not None:
            parsed.problems.append(
                Problem("count", option.flag, f"{option.flag} takes no value", index, option.field)
            )
        else:
            _store(parsed, option, option.kind == "true", index)
        return index + 1
    after = index + 1
    if explicit is not None:
        texts: list[str] = [explicit]
    else:
        limit = _LIMITS.get(option.nargs, -1) if not isinstance(option.nargs, int) else option.nargs
        while after < len(argv) and (limit < 0 or after - index - 1 < limit):
            if argv[after] == "--" or _looks_like_option(argv[after], options):
                break
            if hidden and limit < 0 and after > index + 1 and _ends_list(after, hidden):
                break
            after += 1
        texts = list(argv[index + 1 : after])
    if _wrong_count(option, texts):
        expected = "one value" if option.nargs is None else "at least one value"
        parsed.problems.append(
            Problem("count", option.flag, f"{option.flag} needs {expected}", index, option.field)
        )
        return after
    if hidden and any(at in hidden for at in range(index, after)):
        _store_hidden(parsed, option, texts, index)
        return after
    values = []
    for text in texts:
        try:
            values.append(_convert(option, text))
        except _Refused as refused:
            kind: ProblemKind = "choice" if option.choices else "type"
            parsed.problems.append(Problem(kind, option.flag, str(refused), index, option.field))
            return after
    if option.nargs in {None, "?"}:
        _store(parsed, option, values[0] if values else True, index)
    else:
        _store(parsed, option, tuple(values), index)
        if hidden and after < len(argv) and _ends_list(after, hidden):
            parsed.unknown.add(option.field or option.dest)
    return after


_LIMITS: Mapping[str | None, int] = {None: 1, "?": 1}
"""Most values of argparse's ``nargs``; others have no limit."""


def _wrong_count(option: Option, texts: list[str]) -> bool:
    if option.nargs in {"*", "?"}:
        return False
    if isinstance(option.nargs, int):
        return len(texts) != option.nargs
    return not texts


def _ends_list(at: int, hidden: Mapping[int, Hidden]) -> bool:
    """True for a word among the values of an option that may as well hold the next option."""
    return at in hidden and hidden[at].opaque and hidden[at].splits


def _store_hidden(parsed: Parsed, option: Option, texts: Sequence[str], index: int) -> None:
    """Keep the source text of a value that is not known; whoever reads ``unknown`` knows."""
    single = option.nargs in {None, "?"}
    name = option.field or option.dest
    into = parsed.others if option.field is None else parsed.values
    into[name] = texts[0] if single and texts else tuple(texts)
    parsed.indices[name] = index
    parsed.unknown.add(name)


def _store(parsed: Parsed, option: Option, value: Any, index: int) -> None:
    if option.field is None:
        parsed.others[option.dest] = value
        parsed.indices[option.dest] = index
        parsed.unknown.discard(option.dest)
        return
    if option.field in parsed.values and parsed.values[option.field] != value:
        if option.field not in parsed.unknown:
            parsed.repeated.append(option.field)
            parsed.firsts.setdefault(option.field, parsed.indices[option.field])
        parsed.unknown.discard(option.field)
    parsed.values[option.field] = value
    parsed.indices[option.field] = index


_NOTHING = ("", "None")
"""Texts that stand for "not set" where vLLM lets an argument be."""


def _convert(option: Option, text: str) -> Any:
    """The value of ``text`` under the option's type and choices.

    Raises:
        _Refused: as the real parser would refuse it.
    """
    type = option.type or ""
    if type.endswith("?"):
        if text in _NOTHING:
            return None
        type = type[:-1]
    value: Any = text
    converter = CONVERTERS.get(type)
    if converter is not None:
        try:
            value = converter(text)
        except (ValueError, OverflowError, RecursionError):
            raise _Refused(f"{option.flag} takes {KINDS[type]}, not {text!r}") from None
    elif type == "moe_freq_type":
        value = _frequency(option, text)
    if option.choices is not None and str(value) not in option.choices:
        choices = ", ".join(option.choices)
        raise _Refused(f"{option.flag} takes one of {choices}; {text!r} is none of them")
    return value


def _frequency(option: Option, text: str) -> int | tuple[int, ...] | None:
    """``--moe-layer-freq``: a number, or lists of numbers such as ``[0]*3+[1]*24``.

    Megatron evaluates a text with a bracket as Python if it has nothing but digits and
    ``,[]()+*``; here the same is read without evaluating. What is still something else is not
    known (``None``).
    Source: NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/arguments.py:198-258.
    """
    if "[" not in text:
        try:
            return int(text)
        except ValueError:
            raise _Refused(f"{option.flag} takes a whole number or a list, not {text!r}") from None
    if not _PATTERN.fullmatch(text):
        raise _Refused(f"{option.flag} takes digits and ,[]()+* only, not {text!r}")
    try:
        return _list_of(text)
    except SyntaxError:
        raise _Refused(f"{option.flag} cannot be read: {text!r}") from None


@lru_cache(maxsize=256)
def _list_of(text: str) -> tuple[int, ...] | None:
    """The list that an expression gives; ``None`` if it gives none.

    Raises:
        SyntaxError: if it is no expression.
    """
    try:
        value = _list_expression(ast.parse(text, mode="eval").body)
    except (ValueError, RecursionError, MemoryError):
        return None
    return tuple(value) if isinstance(value, list) else None


_PATTERN = re.compile(r"[,\d\[\]()+*]*")


_MAX_LAYERS = 10_000


_Value = TypeVar("_Value", int, list[int])


def _list_expression(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        items = [_list_expression(item) for item in node.elts]
        if all(type(item) is int for item in items):
            return items
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _list_expression(node.left), _list_expression(node.right)
        if isinstance(left, int) and isinstance(right, int):
            return _limited(left + right if isinstance(node.op, ast.Add) else left * right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return _limited(left + right)
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
            times, items = (right, left) if isinstance(left, list) else (left, right)
            if 0 <= times * max(len(items), 1) <= _MAX_LAYERS:
                return items * times
    raise ValueError(ast.dump(node))


def _limited(value: _Value) -> _Value:
    if (value if isinstance(value, int) else len(value)) > _MAX_LAYERS:
        raise ValueError("too many layers")
    return value
