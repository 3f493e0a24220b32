"""Arguments of the RL frameworks, and the arguments that precision does not touch.

vime, slime and miles parse one command line together with Megatron's parser, so these items
follow Megatron's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.frameworks import FrameworkFlag, framework_flags
from precision_plan.lower.context import Context
from precision_plan.lower.spelling import plain, text
from precision_plan.plan import Item, Reason

_TRAIN_ENV = "THUDM/slime@624b824a:slime/utils/arguments.py:116"


def framework_items(context: Context, train_env_vars: Mapping[str, str]) -> tuple[Item, ...]:
    """The framework's arguments in the order of its catalogue; empty without an RL framework."""
    if not context.is_rl:
        return ()
    items: list[Item] = []
    for field, flag in framework_flags(context.framework or "").items():
        value = context.get(field)
        if value is None:
            continue
        item = _item(flag, value, Reason(f"{field} = {text(value)}", field=field))
        if item is not None:
            items.append(item)
    if train_env_vars:
        because = "variables of the train actors only; Ray takes strings"
        value = json.dumps(dict(train_env_vars), sort_keys=True)
        items.append(Item("--train-env-vars", value, Reason(because, fact=_TRAIN_ENV)))
    return tuple(items)


def _item(flag: FrameworkFlag, value: Any, reason: Reason) -> Item | None:
    name = flag.flags[0]
    if flag.action == "boolean":
        return Item(name if value else f"--no-{name[2:]}", True, reason)
    if flag.action == "store_true":
        return Item(name, True, reason) if value is True else None
    if flag.choices is not None and value not in flag.choices:
        return None
    if flag.nargs is not None:
        return Item(name, list(value), reason)
    return Item(name, value, reason)


def extra_items(context: Context) -> Iterator[Item]:
    """``launch.extra_args``: a key is a flag with or without dashes, ``true`` a switch.

    ``false`` and ``null`` leave the flag out.
    """
    for key, value in (context.get("launch.extra_args") or {}).items():
        if value is None or value is False:
            continue
        field = f"launch.extra_args.{key}"
        name = key if key.startswith("-") else f"--{key.replace('_', '-')}"
        yield Item(name, plain(value), Reason(field, field=field))
