"""PP625 and PP626: kernel switches of the rollout engine against the GPU."""

from __future__ import annotations

from precision_plan.facts.versions import VersionRange
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS, rollout_format

_VLLM_ENVS = "vllm@0.33.0:vllm/envs.py"


@rule(
    "PP625",
    "deep-gemm-needs-powers-of-two",
    "error",
    stage="run",
    source=(
        "vllm-project/vllm#38083",
        "NovaSky-AI/SkyRL#1898",
        "vllm@0.33.0:vllm/utils/deep_gemm.py:75-91",
    ),
    needs=("gpu",),
    hardware="compute capability 10.x",
)
def deep_gemm_scales(ctx: Context) -> Found:
    """VLLM_USE_DEEP_GEMM_E8M0=0 on Blackwell, where DeepGEMM takes power-of-two scales only.

    Why:
        On Hopper 0 keeps the checkpoint's FP32 block scales. On compute capability 10.x the
        block-scaled matrix units read UE8M0 scales and DeepGEMM refuses anything else, in the
        engine's warm-up. The value is a Hopper setting that was carried over.

    Bad:
        hardware: {gpu: b200}
        software: {framework: vime}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM_E8M0: "0"}}

    Good:
        hardware: {gpu: h100}
        software: {framework: vime}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM_E8M0: "0"}}
    """
    found = ctx.rollout_env.get("VLLM_USE_DEEP_GEMM_E8M0")
    capability = ctx.target.compute_capability
    if found is None or found[0] != "0" or capability is None or capability[0] != 10:
        return None
    if ctx.target.framework in SGLANG_FRAMEWORKS or rollout_format(ctx.plan) != "fp8_block":
        return None
    if ctx.rollout_env.get("VLLM_USE_DEEP_GEMM", ("1", ""))[0] == "0":
        return None
    return ctx.found(
        "VLLM_USE_DEEP_GEMM_E8M0=0 on compute capability "
        f"{capability[0]}.{capability[1]}, where DeepGEMM needs power-of-two scales",
        found[1],
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        fix=(
            set_to((found[1], None)),
            set_to(("env.rollout_engine.VLLM_USE_DEEP_GEMM", "0"), also=" to do without DeepGEMM"),
        ),
    )


@rule(
    "PP626",
    "aiter-fp4-needs-gfx950",
    "error",
    stage="run",
    source=(
        "vllm-project/vllm#34641",
        "vllm@0.16.0:vllm/_aiter_ops.py:1001-1002",
        "vllm@0.17.0:vllm/_aiter_ops.py:1148-1151",
    ),
    versions={"vllm": VersionRange(None, "0.16")},
    hardware="ROCm gfx94x",
)
def aiter_fp4(ctx: Context) -> Found:
    """VLLM_ROCM_USE_AITER_FP4BMM is on for a GPU without FP4.

    Why:
        The switch re-quantizes the MLA up-projection to MXFP4, and up to vLLM 0.16 it is on by
        default wherever AITER is. Only gfx950 has FP4; on gfx942 (MI300X, MI325X) the engine stops
        with ``MXFP4 quantization not supported``. From 0.17 on vLLM looks at the GPU.

    Bad:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.16.0}
        env: {rollout_engine: {VLLM_ROCM_USE_AITER: "1"}}

    Good:
        hardware: {gpu: mi300x}
        software: {framework: vllm, vllm: 0.16.0}
        env: {rollout_engine: {VLLM_ROCM_USE_AITER: "1", VLLM_ROCM_USE_AITER_FP4BMM: "0"}}
    """
    gfx, env = ctx.target.gfx, ctx.rollout_env
    if gfx is None or not gfx.startswith("gfx94"):
        return None
    if env.get(_AITER, ("0", ""))[0].lower() not in {"1", "true"}:
        return None
    value, field = env.get(_FP4BMM, ("1", env[_AITER][1]))
    if value.lower() not in {"1", "true"}:
        return None
    scope = field.rpartition(".")[0]
    return ctx.found(
        f"{_FP4BMM} is {'on' if _FP4BMM in env else 'on by default'}, and {gfx} has no FP4",
        field,
        "hardware.gpu",
        "software.vllm",
        fix=(set_to((f"{scope}.{_FP4BMM}", "0")),),
    )


_AITER, _FP4BMM = "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_FP4BMM"


RULES: tuple[Rule, ...] = (deep_gemm_scales, aiter_fp4)
