"""PP546, PP548, PP557: what the engine can do with a weight update, and what it leaves behind."""

from __future__ import annotations

from precision_plan.facts.weight_sync import engine_update
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.formats import rollout_format
from precision_plan.rules.kv_cache import KV, asked_kv_dtype

_RELOAD = "vllm@0.33.0:vllm/model_executor/model_loader/reload"


@rule(
    "PP546",
    "engine-too-old-for-weight-updates",
    "error",
    stage="engine_config",
    source=(
        "vllm@0.16.0:vllm/v1/worker/gpu_worker.py:950-985",
        "vllm@0.17.0:vllm/distributed/weight_transfer/ipc_engine.py",
        "vllm-project/vllm#32133",
        "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py",
    ),
    frameworks=("vime",),
    needs=("vllm",),
)
def engine_too_old(ctx: Context) -> Found:
    """This vLLM cannot take weight updates: transfer and reload came with 0.16, IPC with 0.17.

    Why:
        vime starts the engine with --weight-transfer-config and pushes weights in the
        checkpoint's format. vLLM has the argument, and the layerwise reload that brings
        quantized layers back to that format and repacks them, since 0.16.0. Before,
        post-processing (transposed or repacked weights, renamed scales) made an update of a
        quantized model fail or load wrong bytes. Updates through disk need the reload, too.

    Bad:
        software: {framework: vime, vllm: 0.15.0}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}

    Good:
        software: {framework: vime, vllm: 0.33.0}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
    """
    found = ctx.target.package("vllm")
    if found is None:
        return None
    over_disk = ctx.plan.weight_sync.update_weight_transport == "disk"
    if over_disk and rollout_format(ctx.plan) in {None, "bf16", "fp16", "fp32"}:
        return None  # plain weights reload in place in every version
    colocated = bool(ctx.plan.launch.colocate)
    pushed = "ipc_transfer" if colocated else "weight_transfer"
    row = engine_update("layerwise_reload" if over_disk else pushed)
    if found in row.versions:
        return None
    since = row.versions.since
    assert since is not None
    return ctx.found(
        f"vLLM {found} has no {row.what.replace('_', ' ')}: {row.meaning}",
        "software.vllm",
        "launch.colocate" if colocated and not over_disk else "software.framework",
        fix=(set_to(("software.vllm", since), also=" or later"),),
    )


@rule(
    "PP548",
    "calibrated-kv-scales-go-stale",
    "warning",
    stage="run",
    source=(
        f"{_RELOAD}/layerwise.py:226-321",
        "verl-project/verl#4435",
        "NVIDIA-NeMo/RL#1212",
    ),
    frameworks=("vime",),
)
def calibrated_scales(ctx: Context) -> Found:
    """The KV cache is scaled by the checkpoint's scales, which no weight update renews.

    Why:
        k_scale and v_scale of the checkpoint were calibrated for its weights. A weight update
        sends what the trainer has, and it has no such scales, so vLLM keeps those of the first
        load while keys and values drift away from them. Nothing reports it. Scales of 1.0, or an
        unquantized cache, at least stay what they are. Needs the headers of the checkpoint.

    Bad:
        software: {framework: vime}
        rollout: {kv_cache_dtype: fp8}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        files:
          tensors: {model.layers.0.self_attn.k_scale: "F32 [1]"}

    Good:
        software: {framework: vime}
        rollout: {kv_cache_dtype: auto}
        checkpoint:
          quantization_config:
            {quant_method: fp8, activation_scheme: dynamic, weight_block_size: [128, 128]}
        files:
          tensors: {model.layers.0.self_attn.k_scale: "F32 [1]"}
    """
    asked = asked_kv_dtype(ctx)
    if asked is None or not asked.startswith(("fp8", "nvfp4")):
        return None
    if ctx.checkpoint is None or not ctx.checkpoint.tensors:
        return None
    scale = next((name for name in ctx.checkpoint.tensors if name.endswith(".k_scale")), None)
    if scale is None:
        return None
    return ctx.found(
        f"KV cache in {asked} with scales that the checkpoint was calibrated for once",
        KV,
        Because(f"{scale} in the checkpoint"),
        fix=(
            set_to((KV, "bfloat16")),
            Fix("convert the checkpoint without KV scales, and compare the mismatch"),
        ),
    )


_BACKEND = "rollout.weight_transfer_backend"


@rule(
    "PP557",
    "weight-transfer-does-not-fit-placement",
    "error",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/distributed/weight_transfer/ipc_engine.py:120-235",
        "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py",
    ),
    frameworks=("vime",),
)
def placement(ctx: Context) -> Found:
    """The engine's weight transfer backend does not fit where trainer and engine run.

    Why:
        CUDA IPC hands memory from one process to another on the same GPU: the engine looks its
        own GPU up among the handles and raises if it is not there. NCCL needs trainer and engine
        on different GPUs. vime chooses ipc with --colocate and nccl without, unless the backend
        is given; then it stays as it is, and the first update fails.

    Bad:
        software: {framework: vime}
        rollout: {weight_transfer_backend: ipc}
        launch: {colocate: false}

    Good:
        software: {framework: vime}
        rollout: {weight_transfer_backend: ipc}
        launch: {colocate: true}
    """
    backend, colocate = ctx.plan.rollout.weight_transfer_backend, ctx.plan.launch.colocate
    if colocate is None or backend not in {"ipc", "nccl"} or (backend == "ipc") == colocate:
        return None
    if ctx.plan.weight_sync.update_weight_transport == "disk":
        return None
    fits = "ipc" if colocate else "nccl"
    where = "share GPUs" if colocate else "are on GPUs of their own"
    return ctx.found(
        f"weights travel over {backend}, but trainer and engine {where}",
        _BACKEND,
        "launch.colocate",
        fix=(set_to((_BACKEND, None), also=f" (vime then takes {fits})"),),
    )


RULES: tuple[Rule, ...] = (engine_too_old, calibrated_scales, placement)
