"""What vLLM refuses in how a model is served: drafts, executors, stages and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precision_plan.facts.vllm import architectures
from precision_plan.facts.vllm_serving import draft_methods, one_stage_models, predictors
from precision_plan.plan.engine_model import ServedModel, whole
from precision_plan.plan.engine_parallel import Refused
from precision_plan.plan.precision_plan import PrecisionPlan

_EXTRA = "launch.extra_args"
_EXECUTORS = ("mp", "ray", "uni", "external_launcher")


def serving_refusals(plan: PrecisionPlan, model: ServedModel) -> Iterator[Refused]:
    """Everything that is refused for the sake of drafts, executors, stages and batches."""
    extra: Mapping[str, Any] = plan.launch.extra_args or {}
    draft = extra.get("speculative_config")
    if isinstance(draft, Mapping):
        yield from _drafts(draft, model, extra)
    yield from _executor(extra)
    yield from _stages(plan, model, extra)
    yield from _batches(extra, model)


def _drafts(
    draft: Mapping[str, Any], model: ServedModel, extra: Mapping[str, Any]
) -> Iterator[Refused]:
    """Source: vllm@0.33.0:vllm/config/speculative.py:38-82,711-1170,1226-1500."""
    method = draft.get("method")
    if method is None:
        return
    row = draft_methods().get(method) if isinstance(method, str) else None
    if row is None:
        yield "PP438", f"vLLM 0.33 has no speculative method {method!r}", _EXTRA, None
        return
    own = row.own_layers and "model" not in draft and extra.get("model_impl") != "transformers"
    if own and _drafts_itself(model) is False:
        message = f"{model.architecture} has no draft layers in vLLM 0.33"
        yield "PP438", message, _EXTRA, "model.hf_model_type"


def _drafts_itself(model: ServedModel) -> bool | None:
    """Whether vLLM has draft layers of the family; ``None`` if that is not known."""
    if model.architecture is None or model.model_type is None or model.text is not model.config:
        return None
    for row in predictors():
        # One check of vLLM looks for a part of the name.
        listed = row.model_type is not None and row.model_type in model.model_type
        if not listed and row.architecture != model.architecture:
            continue
        if row.needs is None:
            return True
        count = whole(model.text.get(row.needs))
        return None if count is None else count > 0
    return False


def _executor(extra: Mapping[str, Any]) -> Iterator[Refused]:
    """Source: vllm@0.33.0:vllm/v1/executor/abstract.py:62-105."""
    name = extra.get("distributed_executor_backend")
    if isinstance(name, str) and name not in _EXECUTORS and "." not in name:
        known = ", ".join(_EXECUTORS)
        message = f"executor {name!r} is none of {known}, nor the import path of a class"
        yield "PP448", message, _EXTRA, None


def _stages(plan: PrecisionPlan, model: ServedModel, extra: Mapping[str, Any]) -> Iterator[Refused]:
    """Source: vllm@0.33.0:vllm/config/model.py:1569-1576."""
    stages = plan.rollout.pipeline_parallel_size or 1
    own = model.architecture in one_stage_models() and extra.get("model_impl") != "transformers"
    if own and stages > 1:
        message = f"{model.architecture} cannot be cut into {stages} pipeline stages"
        yield "PP449", message, "rollout.pipeline_parallel_size", "model.hf_architecture"


def _batches(extra: Mapping[str, Any], model: ServedModel) -> Iterator[Refused]:
    """Source: vllm@0.33.0:vllm/config/scheduler.py:331-337; .../models/config.py:772-774.

    The default budget depends on the GPU's memory and on how the engine is started.
    """
    tokens, sequences = extra.get("max_num_batched_tokens"), extra.get("max_num_seqs")
    if type(tokens) is int and type(sequences) is int and tokens < sequences:
        message = f"{sequences} sequences do not fit into a batch of {tokens} tokens"
        yield "PP439", message, _EXTRA, None
    if extra.get("enable_chunked_prefill") is not False or not _recurrent(model):
        return
    cached = extra.get("enable_prefix_caching")
    if cached is True or (cached is None and model.attends and extra.get("runner") != "pooling"):
        message = "prefix caching of a recurrent state needs chunked prefill"
        yield "PP440", message, _EXTRA, None


def _recurrent(model: ServedModel) -> bool:
    families = tuple(row.prefix for row in architectures() if row.recurrent_state)
    return (model.architecture or "").startswith(families)
