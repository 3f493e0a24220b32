"""PP438 to PP440, PP448, PP449: drafts, batches, executors and stages that vLLM refuses."""

from __future__ import annotations

from precision_plan.facts.versions import VersionRange
from precision_plan.rules.base import Context, Found, Rule, rule
from precision_plan.rules.vllm_engine import refused

_RELEASE = {"vllm": VersionRange("0.33.0", "0.33")}


@rule(
    "PP438",
    "speculative-method-refused",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/speculative.py:38-82,711-1170,1226-1500",),
    versions=_RELEASE,
)
def draft_refused(ctx: Context) -> Found:
    """--speculative-config names a method that vLLM or the model does not have.

    Why:
        The method is one of a fixed list. ``mtp`` without a ``model`` drafts with layers of the
        served checkpoint, and vLLM knows for which families it can build them; for any other
        model it stops.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {speculative_config: {method: mtp, num_speculative_tokens: 1}}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {speculative_config: {method: mtp, num_speculative_tokens: 1}}}
        files:
          config:
            {model_type: deepseek_v3, architectures: [DeepseekV3ForCausalLM], kv_lora_rank: 512}
    """
    return tuple(refused(ctx, "PP438"))


@rule(
    "PP439",
    "more-sequences-than-batched-tokens",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/scheduler.py:331-337",),
    versions=_RELEASE,
)
def batch_too_small(ctx: Context) -> Found:
    """--max-num-seqs is larger than --max-num-batched-tokens.

    Why:
        Each running sequence takes at least one token of a step's budget. A budget that is not
        given depends on the GPU's memory and on how the engine is started, and is not judged.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {max_num_seqs: 4096, max_num_batched_tokens: 2048}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {max_num_seqs: 4096, max_num_batched_tokens: 8192}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}
    """
    return tuple(refused(ctx, "PP439"))


@rule(
    "PP440",
    "recurrent-state-without-chunked-prefill",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/model_executor/models/config.py:750-785",),
    versions=_RELEASE,
)
def chunks_off(ctx: Context) -> Found:
    """Chunked prefill is off for a model with recurrent layers whose prefixes are cached.

    Why:
        Prefix caching is on by default for hybrid models, and the cached recurrent states lie at
        the borders of chunks; vLLM asserts that chunked prefill is on. Switch prefix caching off,
        too.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {enable_chunked_prefill: false}}
        files: {config: {model_type: nemotron_h, architectures: [NemotronHForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {enable_chunked_prefill: false, enable_prefix_caching: false}}
        files: {config: {model_type: nemotron_h, architectures: [NemotronHForCausalLM]}}
    """
    return tuple(refused(ctx, "PP440"))


@rule(
    "PP448",
    "executor-unknown",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/v1/executor/abstract.py:62-105",),
    versions=_RELEASE,
)
def executor_unknown(ctx: Context) -> Found:
    """--distributed-executor-backend is neither a known name nor the import path of a class.

    Why:
        Any other text is taken for ``package.Class`` and split at its last dot; without a dot the
        engine stops with a message about unpacking.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {distributed_executor_backend: multiprocessing}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        launch: {extra_args: {distributed_executor_backend: mp}}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}
    """
    return tuple(refused(ctx, "PP448"))


@rule(
    "PP449",
    "model-without-pipeline-stages",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/model.py:1569-1576",),
    versions=_RELEASE,
)
def not_cut(ctx: Context) -> Found:
    """Pipeline parallelism is asked for, and vLLM's class for the model cannot be cut.

    Why:
        A few architectures lack the interface that hands hidden states to the next stage. Tensor
        parallelism serves them.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {pipeline_parallel_size: 2}
        files: {config: {model_type: zamba2, architectures: [Zamba2ForCausalLM]}}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        rollout: {pipeline_parallel_size: 2}
        files: {config: {model_type: llama, architectures: [LlamaForCausalLM]}}
    """
    return tuple(refused(ctx, "PP449"))


RULES: tuple[Rule, ...] = (draft_refused, batch_too_small, chunks_off, executor_unknown, not_cut)
