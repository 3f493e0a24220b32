"""Plan -> Ray: the job's ``runtime_env``, trainer-only variables and what each process sees.

A job variable reaches every process. ``--train-env-vars`` reaches the train actors only and
wins there. There is no narrower way to the rollout engine than the job, so what the plan gives
the driver or the engine becomes a job variable, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.facts.env_vars import env_var
from precision_plan.facts.frameworks import FrameworkVariable, framework_env
from precision_plan.facts.torchrun_env import process_defaults
from precision_plan.lower.context import Context
from precision_plan.plan import Item, Reason
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.lowering import RayLowering

_FAKE_NVFP4 = "OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG"
_TRAINER_ONLY = (_FAKE_NVFP4, "NVTE_USE_FAST_MATH")
"""Variables of NVFP4 fake quantization, which the trainer alone may see."""

_TYPED = frozenset(FIELD_VARIABLES.values()) | {"PYTHONPATH"}
"""Variables that a plan field holds: the field wins over the ``env`` section."""


def ray(context: Context, variables: Iterable[Item]) -> RayLowering:
    """Lower the environment; ``variables`` are those that the trainer needs (TE's included)."""
    needed = {item.name: item for item in variables}
    trainer = _trainer_only(context, needed)
    job = _job(context, needed, trainer)
    runtime_env: dict[str, Any] = {"env_vars": _values(job)}
    working_dir = context.get("launch.working_dir")
    items = list(job.values())
    if working_dir is not None:
        runtime_env["working_dir"] = working_dir
        items.append(
            Item("working_dir", working_dir, Reason("the job's folder", "launch.working_dir"))
        )
    return RayLowering(
        runtime_env=MappingProxyType(runtime_env),
        roles=MappingProxyType(_roles(context, _values(job), _values(trainer))),
        train_env_vars=MappingProxyType(_values(trainer)),
        items=(*items, *trainer.values()),
    )


def _values(items: Mapping[str, Item]) -> dict[str, str]:
    return {name: item.value for name, item in items.items()}


def _declared(context: Context, *scopes: str) -> dict[str, Item]:
    """Entries of the plan's ``env`` section; a later scope wins. The text is not in the reason:
    it may be a secret."""
    found: dict[str, Item] = {}
    for scope in scopes:
        for name, value in (getattr(context.plan.env, scope) or {}).items():
            field = f"env.{scope}.{name}"
            found[name] = Item(name, str(value), Reason(field, field))
    return found


def _trainer_only(context: Context, needed: Mapping[str, Item]) -> dict[str, Item]:
    """Empty without a framework that can tell train actors from other processes."""
    if not context.is_rl:
        return {}
    found = {item.name: item for item in _process_defaults(context)}
    found.update(_declared(context, "train_actor"))
    for name, item in needed.items():
        typed = name in found and name in _TYPED
        if typed or (name in _TRAINER_ONLY and _FAKE_NVFP4 in needed):
            found[name] = item
    return found


def _process_defaults(context: Context) -> Iterator[Item]:
    """What torchrun would have set in a trainer's process; the plan's own word wins."""
    given = _declared(context, "all", "driver")
    for row in process_defaults():
        if row.name not in given:
            yield Item(row.name, row.value, Reason(row.why, fact=row.source))


def _job(
    context: Context, needed: Mapping[str, Item], trainer: Mapping[str, Item]
) -> dict[str, Item]:
    scopes = ["all", "driver", "rollout_engine", "vllm_worker"]
    if not context.is_rl and context.trains:
        scopes = ["all", "train_actor"]
    found = _declared(context, *scopes)
    for name, item in needed.items():
        if name not in trainer and (name in _TYPED or name not in found):
            found[name] = item
    return found


def _roles(
    context: Context, job: Mapping[str, str], trainer: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """What each process finally sees; a role that the plan does not run is absent."""
    found: dict[str, Mapping[str, str]] = {}
    if context.is_rl:
        engine = _actor(context, "rollout_engine", job, {})
        found["driver"] = job
        found["train_actor"] = _actor(context, "train_actor", job, trainer)
        found["rollout_engine"] = engine
        if context.framework == "vime":
            found["vllm_worker"] = engine
    elif context.trains:
        found["train_actor"] = job
    else:
        found["rollout_engine"] = found["vllm_worker"] = job
    found["converter"] = _converter(context, {**job, **trainer})
    return found


def _actor(
    context: Context, role: str, job: Mapping[str, str], trainer: Mapping[str, str]
) -> dict[str, str]:
    """Job variables, then the framework's, then the trainer-only ones, then the framework's last
    word."""
    rows = [row for row in framework_env(context.framework or "") if _applies(context, row, role)]
    seen = dict(job)
    for row in rows:
        if row.how == "removed":
            seen.pop(row.name, None)
        elif row.how != "final" and row.value and (row.how == "forced" or row.name not in seen):
            seen[row.name] = row.value
    seen.update(trainer)
    seen.update((row.name, row.value) for row in rows if row.how == "final" and row.value)
    return seen


def _applies(context: Context, row: FrameworkVariable, role: str) -> bool:
    if role not in row.roles or not row.holds(context.target.compute_capability):
        return False
    colocated = context.get("launch.colocate") is True
    if row.when == "colocate":
        return colocated
    if row.when == "offload_train":
        offload = context.get("launch.offload_train")
        return offload is True or (offload is None and colocated)
    return True


def _converter(context: Context, variables: Mapping[str, str]) -> dict[str, str]:
    """The offline converter: its own variables, and those of the job that it reads."""
    found = {name: item.value for name, item in _declared(context, "all", "converter").items()}
    for name, value in variables.items():
        known = env_var(name)
        if known is not None and "converter" in known.roles and name not in found:
            found[name] = value
    return found
