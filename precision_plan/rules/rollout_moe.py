"""PP44x: vLLM's expert kernels, expert parallelism and batch invariance."""

from __future__ import annotations

from precision_plan.facts.vllm_backends import attention_backend, moe_methods
from precision_plan.plan import Because
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.shapes_rollout import engine_tp
from precision_plan.rules.vllm_engine import by_engine, engine_dtype, method, serves

_ORACLE = "vllm@0.33.0:vllm/model_executor/layers/fused_moe/oracle"
_EXPERTS = "vllm@0.33.0:vllm/model_executor/layers/fused_moe/routed_experts.py:186-200"
_PARALLEL = "vllm@0.33.0:vllm/config/parallel.py:563-592"


@rule(
    "PP441",
    "moe-backend-not-for-format",
    "error",
    stage="build",
    source=(
        f"{_ORACLE}/fp8.py:271-289",
        f"{_ORACLE}/mxfp8.py:34-42",
        f"{_ORACLE}/nvfp4.py:163-182",
    ),
)
def backend_not_for_format(ctx: Context) -> Found:
    """The named expert kernel does not exist for the checkpoint's format.

    Why:
        ``auto`` falls through a list; a named backend must be on the format's own list, or
        vLLM raises ValueError when it builds the first expert layer.

    Bad:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {moe_backend: flashinfer_cutlass}

    Good:
        software: {framework: vllm, vllm: 0.33.0}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {moe_backend: deep_gemm}
    """
    asked = ctx.plan.rollout.moe_backend
    if asked is None or not serves(ctx):
        return None
    asked = asked.lower().replace("-", "_")
    found, field = method(ctx)
    row = moe_methods().get(found.name) if found else None
    if asked == "auto" or row is None or row.backends is None or asked in row.backends:
        return None
    if ctx.at_least("vllm", row.versions.since or "0") is False:
        return None
    return ctx.found(
        f"no {asked} expert kernel for {row.method}",
        "rollout.moe_backend",
        field,
        Because(f"there are: {', '.join(row.backends)}"),
        fix=(set_to(("rollout.moe_backend", "auto")),),
    )


@rule(
    "PP442",
    "eplb-needs-expert-parallelism",
    "error",
    stage="engine_config",
    source=(_PARALLEL,),
)
@by_engine("PP442")
def eplb_needs_ep(ctx: Context) -> Found:
    """Expert load balancing needs expert parallelism over more than one GPU.

    Why:
        EPLB moves experts between ranks; vLLM refuses it without --enable-expert-parallel and
        without a second rank.

    Bad:
        software: {framework: vllm}
        rollout: {enable_eplb: true, tensor_parallel_size: 8}

    Good:
        software: {framework: vllm}
        rollout: {enable_eplb: true, enable_expert_parallel: true, tensor_parallel_size: 8}
    """
    rollout = ctx.plan.rollout
    if not rollout.enable_eplb or not serves(ctx):
        return None
    if not rollout.enable_expert_parallel:
        return ctx.found(
            "expert load balancing without expert parallelism",
            "rollout.enable_eplb",
            "rollout.enable_expert_parallel",
            fix=(set_to(("rollout.enable_expert_parallel", True)),),
        )
    tp, field = engine_tp(ctx)
    if tp is None or tp * (rollout.data_parallel_size or 1) > 1:
        return None
    return ctx.found(
        "expert load balancing on one GPU",
        "rollout.enable_eplb",
        field,
        fix=(set_to(("rollout.enable_eplb", None)),),
    )


@rule(
    "PP443",
    "eplb-not-for-method",
    "error",
    stage="build",
    source=(_EXPERTS,),
)
def eplb_not_for_method(ctx: Context) -> Found:
    """The checkpoint's method cannot move experts between ranks.

    Why:
        Each method must say that its expert tensors may be rearranged. ModelOpt's FP8 and
        MXFP8 experts, GPTQ and AWQ do not; vLLM raises NotImplementedError when it builds them.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: MXFP8}}
        rollout: {enable_eplb: true, enable_expert_parallel: true, tensor_parallel_size: 8}

    Good:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {enable_eplb: true, enable_expert_parallel: true, tensor_parallel_size: 8}
    """
    if not ctx.plan.rollout.enable_eplb or not serves(ctx):
        return None
    found, field = method(ctx)
    row = moe_methods().get(found.name) if found else None
    if row is None or row.eplb:
        return None
    return ctx.found(
        f"expert load balancing does not work with {row.method}",
        "rollout.enable_eplb",
        field,
        fix=(set_to(("rollout.enable_eplb", None)),),
    )


@rule(
    "PP444",
    "moonep-is-bfloat16-only",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/vllm.py:2106-2140",),
)
def moonep(ctx: Context) -> Found:
    """The moonep token exchange takes unquantized bfloat16 models only.

    Why:
        vLLM refuses it with any quantization method, with another dtype and with EPLB.

    Bad:
        software: {framework: vllm}
        checkpoint: {quantization_config: {quant_method: fp8, activation_scheme: dynamic}}
        rollout: {all2all_backend: moonep}

    Good:
        software: {framework: vllm}
        rollout: {all2all_backend: moonep, dtype: bfloat16}
    """
    if ctx.plan.rollout.all2all_backend != "moonep" or not serves(ctx):
        return None
    found, field = method(ctx)
    dtype, place = engine_dtype(ctx)
    if found is not None:
        premise, text = field, f"a checkpoint of method {found.name}"
    elif dtype not in {None, "bfloat16"}:
        premise, text = place, f"a model in {dtype}"
    elif ctx.plan.rollout.enable_eplb:
        premise, text = "rollout.enable_eplb", "expert load balancing"
    else:
        return None
    return ctx.found(
        f"moonep does not work with {text}",
        "rollout.all2all_backend",
        premise,
        fix=(set_to(("rollout.all2all_backend", None)),),
    )


@rule(
    "PP445",
    "expert-parallelism-of-a-dense-model",
    "error",
    stage="engine_config",
    source=("vllm@0.33.0:vllm/config/model.py:1498-1503",),
)
@by_engine("PP445")
def dense_with_ep(ctx: Context) -> Found:
    """Expert parallelism is asked for and the model has no experts.

    Why:
        vLLM raises ValueError: the number of experts must be greater than zero.

    Bad:
        software: {framework: vllm}
        model: {num_layers: 36, hidden_size: 2560, ffn_hidden_size: 9728}
        rollout: {enable_expert_parallel: true}

    Good:
        software: {framework: vllm}
        model: {num_layers: 48, hidden_size: 2048, num_experts: 128}
        rollout: {enable_expert_parallel: true}
    """
    model = ctx.plan.model
    if not ctx.plan.rollout.enable_expert_parallel or model.num_experts is not None:
        return None
    if model.num_layers is None or model.ffn_hidden_size is None or not serves(ctx):
        return None
    if (model.hf_architecture or "").startswith("NemotronH"):
        return None  # its configuration class has experts by default
    return ctx.found(
        "expert parallelism for a model without experts",
        "rollout.enable_expert_parallel",
        "model.num_experts",
        fix=(set_to(("rollout.enable_expert_parallel", None)),),
    )


@rule(
    "PP446",
    "batch-invariance-refused-by-backend",
    "error",
    stage="attention_backend",
    source=("vllm@0.33.0:vllm/v1/attention/backend.py:340-341",),
)
def batch_invariance(ctx: Context) -> Found:
    """VLLM_BATCH_INVARIANT is on and the named attention backend does not support it.

    Why:
        Batch-independent results need backends that keep their order of additions: FLASH_ATTN,
        TRITON_ATTN, FLEX_ATTENTION, FLASH_ATTN_MLA and TRITON_MLA. Another one is refused.

    Bad:
        hardware: {gpu: h100}
        software: {framework: vllm}
        rollout: {attention_backend: FLASHINFER}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}

    Good:
        hardware: {gpu: h100}
        software: {framework: vllm}
        rollout: {attention_backend: FLASH_ATTN}
        env: {all: {VLLM_BATCH_INVARIANT: "1"}}
    """
    name, platform = ctx.plan.rollout.attention_backend, ctx.target.platform
    if name is None or platform is None or not serves(ctx):
        return None
    found = ctx.rollout_env.get("VLLM_BATCH_INVARIANT")
    row = attention_backend(name, platform)
    if found is None or found[0] != "1" or row is None or row.batch_invariant:
        return None
    return ctx.found(
        f"{name} does not support batch invariance",
        "rollout.attention_backend",
        found[1],
        fix=(set_to(("rollout.attention_backend", None)), set_to((found[1], None))),
    )


@rule(
    "PP447",
    "deep-gemm-for-qwen35-experts",
    "warning",
    stage="run",
    source=(
        "vllm-project/vllm#50332",
        "vllm-project/vllm#56288",
        "vllm-project/vllm#37618",
        f"{_ORACLE}/fp8.py:480-503",
    ),
    needs=("gpu",),
    hardware="compute capability 10.x and 12.x",
)
def deep_gemm_for_qwen35(ctx: Context) -> Found:
    """DeepGEMM would compute the FP8 experts of Qwen3.5, which lose accuracy in it on Blackwell.

    Why:
        vLLM leaves DeepGEMM out for these models because its power-of-two scales cost accuracy.
        Up to 0.28 the experts' selection does not look at that list, and on 12.x it picks
        DeepGEMM. In every version a variable set to 1 by hand overrules the list.

    Bad:
        hardware: {gpu: rtx-pro-6000}
        software: {framework: vllm, vllm: 0.28.0}
        model: {num_layers: 40, num_experts: 256, hf_model_type: qwen3_5_moe_text}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        hardware: {gpu: rtx-pro-6000}
        software: {framework: vllm, vllm: 0.28.0}
        model: {num_layers: 40, num_experts: 256, hf_model_type: qwen3_5_moe_text}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {rollout_engine: {VLLM_MOE_USE_DEEP_GEMM: "0"}}
    """
    capability, config = ctx.target.compute_capability, ctx.plan.checkpoint.quantization_config
    if capability is None or capability[0] not in {10, 12} or config is None or not serves(ctx):
        return None
    model = ctx.plan.model
    if not (model.hf_model_type or "").startswith("qwen3_5_moe") and not (
        model.hf_architecture or ""
    ).startswith("Qwen3_5Moe"):
        return None
    if not config.weight_block_size or ctx.plan.rollout.moe_backend not in {None, "auto"}:
        return None
    env = ctx.rollout_env
    given = [env[name] for name in _DEEP_GEMM if name in env]
    if any(value == "0" for value, _ in given):
        return None
    old = capability[0] == 12 and ctx.at_least("vllm", "0.29.0") is False
    if not given and not old:
        return None
    off = set_to(("env.rollout_engine.VLLM_MOE_USE_DEEP_GEMM", "0"))
    fixes = (set_to((given[0][1], None)), off) if given and not old else (off,)
    return ctx.found(
        "the experts of Qwen3.5 run in DeepGEMM, whose power-of-two scales cost them accuracy",
        given[0][1] if given else "checkpoint.quantization_config.weight_block_size",
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        "software.vllm",
        fix=fixes,
    )


_DEEP_GEMM = ("VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM")


RULES: tuple[Rule, ...] = (
    backend_not_for_format,
    eplb_needs_ep,
    eplb_not_for_method,
    moonep,
    dense_with_ep,
    batch_invariance,
    deep_gemm_for_qwen35,
)
