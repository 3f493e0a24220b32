"""The rollout's block scales follow the trainer's: DeepGEMM's switch, from the declared target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from precision_plan.lower.context import Context
from precision_plan.lower.transformer_engine import BLOCK_SCALES, recipe_of
from precision_plan.plan import Item, Reason

DEEP_GEMM_SCALES = "VLLM_USE_DEEP_GEMM_E8M0"

_SOURCE = "vllm@0.33.0:vllm/envs.py:1606"


def engine_scales(context: Context, trainer: Mapping[str, str]) -> Iterator[Item]:
    """Keep FP32 scales in vLLM on Hopper where the trainer has them.

    ``trainer`` holds the train actor's variables. Later GPUs take power-of-two scales on both
    sides, which is vLLM's default; a variable that the plan gives stays as it is.
    """
    capability = context.target.compute_capability
    recipe = recipe_of(context)
    if context.framework != "vime" or capability is None or capability[0] != 9:
        return
    if recipe is None or recipe.name != "Float8BlockScaling" or trainer.get(BLOCK_SCALES) != "1":
        return
    if not _serves_blocks(context) or _declared(context):
        return
    because = "keeps the rollout's FP32 block scales, which vLLM would round to powers of two"
    yield Item(DEEP_GEMM_SCALES, "0", Reason(because, fact=_SOURCE))


def _serves_blocks(context: Context) -> bool:
    config = context.plan.checkpoint.quantization_config
    return context.get("checkpoint.hf_weight_format") == "fp8_block" or (
        config is not None and config.quant_method == "fp8" and config.weight_block_size is not None
    )


def _declared(context: Context) -> bool:
    env = context.plan.env
    scopes = (env.all, env.rollout_engine, env.vllm_worker)
    return any(DEEP_GEMM_SCALES in (scope or {}) for scope in scopes)
