"""PP45x: what RL frameworks drop, force or refuse between a plan and its engine."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import SGLANG_FRAMEWORKS
from precision_plan.rules.shapes_rollout import engine_tp

_ENGINE = "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py"
_ARGS = "vllm-project/vime@0696c9bd:vime/backends/vllm_utils/arguments.py"
_SGLANG = "THUDM/slime@624b824a:slime/backends/sglang_utils/arguments.py"


@rule(
    "PP451",
    "flags-of-another-engine",
    "error",
    stage="run",
    source=(
        f"{_SGLANG}:225",
        "THUDM/slime@624b824a:slime/backends/megatron_utils/arguments.py:195",
        _ARGS,
    ),
    frameworks=RL_FRAMEWORKS,
)
def other_engine(ctx: Context) -> Iterator[Finding]:
    """A flag of an engine that this framework does not run is dropped without a message.

    Why:
        vime rolls out with vLLM, slime and miles with SGLang. The parsers of vime and slime
        skip what they do not know, so --sglang-kv-cache-dtype in vime does nothing at all;
        miles refuses it.

    Bad:
        software: {framework: vime}
        launch: {extra_args: {sglang-kv-cache-dtype: fp8_e4m3}}

    Good:
        software: {framework: vime}
        rollout: {kv_cache_dtype: fp8_e4m3}
    """
    extra = ctx.plan.launch.extra_args
    if not extra:
        return
    foreign = "vllm" if ctx.target.framework in SGLANG_FRAMEWORKS else "sglang"
    for name in extra:
        if name.lstrip("-").replace("_", "-").startswith(f"{foreign}-"):
            yield ctx.found(
                f"--{name.lstrip('-')} is dropped: {ctx.target.framework} does not run {foreign}",
                f"launch.extra_args.{name}",
                "software.framework",
                fix=(set_to((f"launch.extra_args.{name}", None)),),
            )


@rule(
    "PP452",
    "engine-argument-owned-by-framework",
    "error",
    stage="run",
    source=(f"{_ARGS}:73-113", f"{_ENGINE}:133-155"),
    frameworks=("vime",),
)
def owned(ctx: Context) -> Iterator[Finding]:
    """vime decides this engine argument itself and drops the plan's value.

    Why:
        --vllm-dtype and --vllm-tensor-parallel-size are not registered: the dtype is float16
        with fp16 training and the checkpoint's otherwise, the tensor parallel size is the
        GPUs of one engine divided by its pipeline size. A value that says the same is harmless.

    Bad:
        software: {framework: vime}
        training: {bf16: true}
        rollout: {dtype: float16}

    Good:
        software: {framework: vime}
        training: {fp16: true}
        rollout: {dtype: float16}
    """
    rollout = ctx.plan.rollout
    if rollout.dtype not in {None, "auto"}:
        fp16 = bool(ctx.args.fp16)
        half = rollout.dtype in {"float16", "half"}
        if half != fp16 or rollout.dtype in {"float", "float32"}:
            yield ctx.found(
                f"vime drops rollout.dtype = {rollout.dtype}: the engine's dtype is "
                f"{'float16' if fp16 else 'that of the checkpoint'}",
                "rollout.dtype",
                "training.fp16",
                fix=(set_to(("rollout.dtype", None)),),
                resolved={"rollout.dtype": "float16" if fp16 else "auto"},
            )
    size, (tp, field) = rollout.tensor_parallel_size, engine_tp(ctx)
    if size is not None and tp is not None and size != tp:
        yield ctx.found(
            f"vime drops rollout.tensor_parallel_size = {size}: the engine has {tp}",
            "rollout.tensor_parallel_size",
            field,
            "rollout.pipeline_parallel_size",
            fix=(set_to(("rollout.tensor_parallel_size", None)), set_to((field, size))),
            resolved={"rollout.tensor_parallel_size": tp},
        )


@rule(
    "PP453",
    "engine-layout-refused",
    "error",
    stage="run",
    source=(f"{_ENGINE}:139-157", f"{_ENGINE}:165-175"),
    frameworks=("vime",),
)
def layout(ctx: Context) -> Found:
    """vime cannot start an engine with this parallel layout.

    Why:
        Data parallelism inside an engine raises NotImplementedError; the GPUs of an engine must
        be a multiple of its pipeline size. Both show after the cluster is up.

    Bad:
        software: {framework: vime}
        rollout: {data_parallel_size: 8}

    Good:
        software: {framework: vime}
        launch: {rollout_num_gpus_per_engine: 8}
    """
    rollout = ctx.plan.rollout
    if (rollout.data_parallel_size or 1) != 1:
        return ctx.found(
            "vime has no data parallelism inside an engine",
            "rollout.data_parallel_size",
            "software.framework",
            fix=(set_to(("rollout.data_parallel_size", None)),),
        )
    gpus, pipeline = ctx.plan.launch.rollout_num_gpus_per_engine, rollout.pipeline_parallel_size
    if gpus is None or pipeline is None or gpus % pipeline == 0:
        return None
    return ctx.found(
        f"{gpus} GPUs of an engine are not a multiple of its {pipeline} pipeline stages",
        "rollout.pipeline_parallel_size",
        "launch.rollout_num_gpus_per_engine",
        fix=(
            set_to(("rollout.pipeline_parallel_size", None)),
            Fix(f"give an engine a multiple of {pipeline} GPUs"),
        ),
    )


@rule(
    "PP454",
    "rollout-section-describes-vllm",
    "warning",
    stage="run",
    source=(
        f"{_SGLANG}:51-69",
        "THUDM/slime@624b824a:slime/backends/sglang_utils/sglang_engine.py:571",
    ),
    frameworks=SGLANG_FRAMEWORKS,
)
def describes_vllm(ctx: Context) -> Found:
    """The rollout section holds vLLM arguments, and this framework rolls out with SGLang.

    Why:
        slime and miles start SGLang servers; vLLM's arguments have no reader there. Engine
        arguments go to launch.extra_args with the prefix sglang-, the weight format is the
        checkpoint's.

    Bad:
        software: {framework: slime}
        rollout: {kv_cache_dtype: fp8_e4m3}

    Good:
        software: {framework: slime}
        launch: {extra_args: {sglang-kv-cache-dtype: fp8_e4m3}}
    """
    given = [name for name, value in ctx.plan.rollout.set_items() if value not in {"auto", False}]
    if not given:
        return None
    return ctx.found(
        f"rollout.{given[0]} is an argument of vLLM; {ctx.target.framework} runs SGLang",
        f"rollout.{given[0]}",
        "software.framework",
        fix=(Fix("use launch.extra_args with sglang-..., or framework: vime"),),
    )


@rule(
    "PP455",
    "rollout-gpus-overwritten",
    "warning",
    stage="run",
    source=(
        "vllm-project/vime@035f9834:vime/utils/arguments.py",
        "THUDM/slime@624b824a:slime/utils/arguments.py:1940-1960",
    ),
    frameworks=("vime",),
    fixable=True,
)
def gpus_overwritten(ctx: Context) -> Found:
    """With colocation vime overwrites the number of rollout GPUs.

    Why:
        Colocated engines live on the trainer's GPUs, so vime sets rollout_num_gpus to actor
        nodes times GPUs per node, whatever was given.

    Bad:
        software: {framework: vime}
        launch:
          {colocate: true, actor_num_nodes: 1, actor_num_gpus_per_node: 8, rollout_num_gpus: 4}

    Good:
        software: {framework: vime}
        launch: {colocate: true, actor_num_nodes: 1, actor_num_gpus_per_node: 8}
    """
    launch = ctx.plan.launch
    if not launch.colocate or not launch.rollout_num_gpus:
        return None
    if launch.actor_num_nodes is None or launch.actor_num_gpus_per_node is None:
        return None
    gpus = launch.actor_num_nodes * launch.actor_num_gpus_per_node
    if gpus == launch.rollout_num_gpus:
        return None
    return ctx.found(
        f"launch.rollout_num_gpus = {launch.rollout_num_gpus} becomes {gpus} with colocation",
        "launch.rollout_num_gpus",
        "launch.colocate",
        fix=(set_to(("launch.rollout_num_gpus", None), safe=True),),
        resolved={"launch.rollout_num_gpus": gpus},
    )


@rule(
    "PP458",
    "logprobs-before-temperature",
    "warning",
    stage="run",
    source=(f"{_ENGINE}:399-403",),
    frameworks=("vime",),
)
def logprobs(ctx: Context) -> Found:
    """The engine returns log-probabilities that the trainer cannot compare with its own.

    Why:
        vime asks vLLM for processed_logprobs unless told otherwise, because the trainer
        recomputes log-probabilities after the temperature. Raw ones are taken before it, and
        the importance ratio between trainer and rollout is then off at every temperature but 1.

    Bad:
        software: {framework: vime}
        rollout: {logprobs_mode: raw_logprobs}

    Good:
        software: {framework: vime}
        rollout: {logprobs_mode: processed_logprobs}
    """
    mode = ctx.plan.rollout.logprobs_mode
    if mode in {None, "processed_logprobs"}:
        return None
    return ctx.found(
        f"rollout.logprobs_mode = {mode}, but the trainer compares processed log-probabilities",
        "rollout.logprobs_mode",
        "software.framework",
        fix=(set_to(("rollout.logprobs_mode", None)),),
    )


RULES: tuple[Rule, ...] = (
    other_engine,
    owned,
    layout,
    describes_vllm,
    gpus_overwritten,
    logprobs,
)
