"""How a value is written on a command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from precision_plan.facts.megatron import MegatronFlag, flags_by_field
from precision_plan.facts.megatron_shape import shape_flags
from precision_plan.plan import Item, Reason


def number(value: float) -> str:
    """A float as people write it: ``1e-6`` for 1e-06, ``0.1``, ``65536`` for 65536.0.

    A small integral value keeps its point (``1.0``), which shows that the flag takes a float.
    """
    if value.is_integer() and 10 <= abs(value) < 1e16:
        return str(int(value))
    mantissa, exponent, power = repr(value).partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def text(value: Any) -> str:
    """One value as one word; a mapping as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return json.dumps(plain(value), sort_keys=True)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text(entry) for entry in value) + "]"
    return str(value)


def plain(value: Any) -> Any:
    """``value`` as JSON data: lists, objects with text keys, and the text of anything else."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def words(item: Item) -> tuple[str, ...]:
    """The words of one item: the flag alone, or the flag and its value or values."""
    if item.value is True:
        return (item.name,)
    if isinstance(item.value, (list, tuple)):
        return (item.name, *map(text, item.value))
    return (item.name, text(item.value))


def command_line(items: Iterable[Item]) -> tuple[str, ...]:
    """The words of all items in order."""
    return tuple(word for item in items for word in words(item))


def field_words(field: str, value: Any) -> tuple[str, ...] | None:
    """The words that give Megatron a plan field's value, in the newest spelling.

    Empty for a switch that is off by not being there; ``None`` if no flag can say the value.
    """
    flag = flags_by_field().get(field)
    flag = flag or next((each for each in shape_flags() if each.field == field), None)
    if flag is None:
        return None
    item = flag_item(flag, value, Reason(field))
    if item is None:
        return () if isinstance(value, bool) else None
    return words(item)


def flag_item(flag: MegatronFlag, value: Any, reason: Reason) -> Item | None:
    """The item that gives ``flag`` its ``value``, or ``None`` where nothing can be said.

    A switch can only say the opposite of its default, a flag that takes a word cannot take a
    boolean, and one that takes one word cannot take several; a layer pattern is one word
    (``[1,1,0]``).
    """
    name = flag.flags[0]
    if flag.action == "store_true":
        return Item(name, True, reason) if value is True else None
    if flag.action == "store_false":
        return Item(name, True, reason) if value is False else None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (list, tuple)):
        return _list_item(flag, list(value), reason)
    if flag.nargs in ("+", "*"):
        return Item(name, [value], reason)
    if flag.type == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return Item(name, value, reason)


def _list_item(flag: MegatronFlag, values: list[Any], reason: Reason) -> Item | None:
    name = flag.flags[0]
    if flag.type == "moe_freq_type":
        return Item(name, text(values), reason)
    if not values and flag.nargs != "*":
        return None
    if flag.nargs in ("+", "*"):
        return Item(name, values, reason)
    return Item(name, values[0], reason) if len(values) == 1 else None
