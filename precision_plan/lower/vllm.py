"""Plan -> vLLM: engine arguments, the command line behind ``vllm serve``, the prefixed passthrough.

Of a framework's own additions only those are listed that decide a format, a parallel size or
the weight transfer; ports, seeds and hosts are chosen when the engine starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from precision_plan.facts.frameworks import engine_passthrough
from precision_plan.facts.vllm import DEFAULT_VERSION, engine_args_at
from precision_plan.lower.context import Context
from precision_plan.lower.spelling import plain, text, words
from precision_plan.plan import Item, Reason
from precision_plan.plan.lowering import VllmLowering

_ENGINE = (
    "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py (build_vllm_cmd_and_env)"
)


def vllm(context: Context, env: Mapping[str, str]) -> VllmLowering:
    """Lower the rollout; ``env`` is what the engine finally sees.

    Empty where no vLLM engine is part of the plan.
    """
    planned = list(_planned(context)) if _serves(context) else []
    added = list(_added(context, {item.name for item in planned}))
    extra = list(_extra(context))
    items = [*planned, *added, *extra]
    if not items:
        return VllmLowering()
    return VllmLowering(
        args=MappingProxyType({item.name: item.value for item in items}),
        argv=(*_model(context), *_command_line(items, "--")),
        passthrough=_passthrough(context, planned),
        env=MappingProxyType(dict(_engine_variables(context, env))),
        items=tuple(items),
    )


def _serves(context: Context) -> bool:
    """slime and miles roll out with another engine, which this plan does not describe."""
    return context.framework not in ("slime", "miles")


def _planned(context: Context) -> Iterator[Item]:
    """The plan's engine arguments, as far as the declared version has them."""
    known = engine_args_at(context.target.package("vllm") or DEFAULT_VERSION)
    for field, argument in known.items():
        value = context.get(field)
        if value is None:
            continue
        name = argument.flag[2:].replace("-", "_")
        value = {argument.key: value} if argument.kind == "json_key" else plain(value)
        yield Item(name, value, Reason(f"{field} = {text(context.get(field))}", field=field))


def _added(context: Context, given: set[str]) -> Iterator[Item]:
    """What vime sets for every engine unless the plan does."""
    if context.framework != "vime":
        return
    for name, value, because in _additions(context):
        if name not in given:
            yield Item(name, value, Reason(f"vime: {because}", fact=_ENGINE))


def _additions(context: Context) -> Iterator[tuple[str, Any, str]]:
    gpus = context.get("launch.rollout_num_gpus_per_engine") or 1
    pipeline = context.get("rollout.pipeline_parallel_size") or 1
    if gpus % pipeline == 0:
        yield "tensor_parallel_size", gpus // pipeline, "GPUs per engine over pipeline stages"
    if context.argument("fp16"):
        yield "dtype", "float16", "training is in FP16"
    colocated = context.get("launch.colocate") is True
    if colocated or context.get("launch.offload_rollout") is True:
        yield "enable_sleep_mode", True, "the trainer takes the GPU between rollouts"
    yield "logprobs_mode", "processed_logprobs", "the trainer compares scaled log-probabilities"
    backend = "ipc" if colocated else "nccl"
    yield "weight_transfer_config", {"backend": backend}, "weight updates need a transfer engine"


def _extra(context: Context) -> Iterator[Item]:
    """Arguments of a plan that only serves; a framework's are on its own command line."""
    if context.trains:
        return
    for key, value in (context.get("launch.extra_args") or {}).items():
        if value is not None:
            name = key.lstrip("-").replace("-", "_")
            field = f"launch.extra_args.{key}"
            yield Item(name, plain(value), Reason(field, field=field))


# Command lines --------------------------------------------------------------------------------
def _model(context: Context) -> tuple[str, ...]:
    model = context.get("checkpoint.hf_checkpoint")
    return () if model is None else (model,)


def _command_line(items: Iterable[Item], prefix: str) -> Iterator[str]:
    for item in items:
        flag = item.name.replace("_", "-")
        if item.value is False:
            yield f"--no-{prefix[2:]}{flag}"
        else:
            yield from words(Item(f"{prefix}{flag}", item.value, item.reason))


def _passthrough(context: Context, items: Iterable[Item]) -> tuple[str, ...]:
    """The plan's arguments with the framework's prefix, without those that it would drop."""
    rule = engine_passthrough(context.framework or "")
    if rule is None or rule.engine != "vllm":
        return ()
    return tuple(
        _command_line((item for item in items if item.name not in rule.dropped), rule.prefix)
    )


def _engine_variables(context: Context, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The engine's own variables: what the plan gives it, and the framework's VLLM ones."""
    given = {**(context.plan.env.rollout_engine or {}), **(context.plan.env.vllm_worker or {})}
    for name, value in env.items():
        if name in given or name.startswith("VLLM_"):
            yield name, value
