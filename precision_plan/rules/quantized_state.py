"""PP135, PP184, PP186, PP192, PP193, PP560: formats of parameters, of state, of checkpoints."""

from __future__ import annotations

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.versions import VersionRange
from precision_plan.rules.base import Context, Found, Rule, rule, set_to
from precision_plan.rules.sources import core, megatron

_GATHER = "training.fp8_param_gather"


@rule(
    "PP135",
    "fp8-memory",
    "advice",
    stage="build",
    source=("NVIDIA/Megatron-LM#1236", "modelscope/ms-swift#9822"),
)
def fp8_memory(ctx: Context) -> Found:
    """FP8 training without FP8 parameters takes more memory than BF16 training.

    Why:
        FP8 is the format of the GEMMs. The BF16 weights stay, and every weight gets FP8 copies (on
        Hopper a transposed one, too): a run that just fitted in BF16 runs out of memory. Gathered
        FP8 parameters replace the BF16 ones. MXFP8 is another rule's subject, and an optimizer on
        the CPU takes no FP8 parameters.

    Bad:
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed}

    Good:
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed, fp8_param_gather: true}
        optimizer: {use_distributed_optimizer: true}
    """
    args = ctx.args
    if not args.fp8 or args.fp8_param_gather or args.fp8_recipe == "mxfp8" or not ctx.trains:
        return None
    if args.optimizer_cpu_offload:
        return None
    return ctx.found(
        "FP8 copies of the weights come on top of the BF16 weights",
        _GATHER,
        "training.fp8_format",
        fix=(set_to((_GATHER, True), ("optimizer.use_distributed_optimizer", True)),),
    )


_MOMENTS = ("exp_avg_dtype", "exp_avg_sq_dtype")


@rule(
    "PP184",
    "rl-optimizer-state-in-bf16",
    "warning",
    stage="run",
    source=("verl-project/verl#6526",),
    frameworks=RL_FRAMEWORKS,
)
def bf16_state(ctx: Context) -> Found:
    """In reinforcement learning the whole optimizer state is lowered to BF16.

    Why:
        RL takes small steps with noisy gradients. With main gradients and both moments in BF16 an
        update can be smaller than what the second moment resolves; a framework that meant to do so
        by default was asked for evidence that runs still converge. One of the three in FP32, most
        of all the second moment or the main gradients, keeps the sum exact.

    Bad:
        software: {framework: slime}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    main_grads_dtype: bf16, exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16}

    Good:
        software: {framework: slime}
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    main_grads_dtype: fp32, exp_avg_dtype: bf16, exp_avg_sq_dtype: fp32}
    """
    optimizer = ctx.plan.optimizer
    low = [optimizer.main_grads_dtype, *(getattr(optimizer, name) for name in _MOMENTS)]
    if not ctx.args.use_precision_aware_optimizer or low != ["bf16"] * 3:
        return None
    return ctx.found(
        "main gradients and both moments are in bf16",
        "optimizer.exp_avg_sq_dtype",
        "optimizer.exp_avg_dtype",
        "optimizer.main_grads_dtype",
        fix=(
            set_to(("optimizer.main_grads_dtype", "fp32"), ("optimizer.exp_avg_sq_dtype", "fp32")),
        ),
    )


@rule(
    "PP186",
    "muon-with-fp8-parameters",
    "error",
    stage="run",
    source=(
        "NVIDIA/Megatron-LM#5707",
        "NVIDIA/Megatron-LM#4987",
        megatron("core/optimizer/layer_wise_optimizer.py", "core_v0.19.0"),
    ),
    versions=core("0.16.0", None),
)
def layerwise_fp8_parameters(ctx: Context) -> Found:
    """Muon and its kin do not bring their updates back to FP8 parameters.

    Why:
        Gathered FP8 parameters are written by the standard distributed optimizer. The layer-wise
        optimizer updates its masters only: no release up to 0.19 and no development version up to
        August 2026 stages them, so the forward pass keeps the first weights and the loss stays
        flat, without a message.

    Bad:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true,
                   reuse_grad_buf_for_mxfp8_param_ag: true}
        optimizer: {optimizer: muon, use_distributed_optimizer: true}

    Good:
        software: {megatron_core: 0.19.0}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
        optimizer: {optimizer: muon}
    """
    args = ctx.args
    if not args.fp8_param_gather or args.optimizer in {None, "adam", "sgd"}:
        return None
    return ctx.found(
        f"{args.optimizer} never updates the FP8 parameters that the forward pass reads",
        _GATHER,
        "optimizer.optimizer",
        fix=(
            set_to((_GATHER, None), ("training.reuse_grad_buf_for_mxfp8_param_ag", None)),
            set_to(("optimizer.optimizer", "adam")),
        ),
    )


_GROUPED = "core/extensions/transformer_engine.py"


@rule(
    "PP192",
    "grouped-experts-cannot-be-saved",
    "error",
    stage="run",
    source=(
        "NVIDIA/Megatron-LM#6509",
        megatron(f"{_GROUPED}:2267-2306", "core_v0.18.2"),
        "transformer-engine@2.20.2:transformer_engine/pytorch/module/base.py:1385-1393",
    ),
    versions=core(None, "0.19"),
    needs=("megatron_core", "transformer_engine"),
)
def stateless_extra_state(ctx: Context) -> Found:
    """Grouped experts of a recipe without state cannot be saved.

    Why:
        A recipe other than delayed scaling has nothing to save, and recent Transformer Engine says
        so with an empty tensor. Megatron up to 0.19 decodes it as FP8 metadata when it splits the
        grouped layer's extra state into experts, and the first save fails.

    Bad:
        software: {megatron_core: 0.18.2, transformer_engine: 2.20.2}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, moe_grouped_gemm: true}
        checkpoint: {save: checkpoints/run, save_interval: 100}

    Good:
        software: {megatron_core: HEAD, transformer_engine: 2.20.2}
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise, moe_grouped_gemm: true}
        checkpoint: {save: checkpoints/run, save_interval: 100}
    """
    args, checkpoint = ctx.args, ctx.plan.checkpoint
    if not (args.fp8 and args.moe_grouped_gemm and ctx.plan.model.num_experts):
        return None
    if args.fp8_recipe in {"delayed", "custom"} or not ctx.at_least("transformer_engine", _SINCE):
        return None
    if checkpoint.save is None or checkpoint.ckpt_format not in {None, "torch_dist"}:
        return None
    return ctx.found(
        f"the state of grouped experts in {args.fp8_recipe} is empty, and Megatron "
        f"{ctx.effective.megatron_core} decodes it while it saves",
        "checkpoint.save",
        "training.fp8_recipe",
        "training.moe_grouped_gemm",
        fix=(
            set_to(("software.megatron_core", "HEAD"), also=" (or backport the fix)"),
            set_to(("training.moe_grouped_gemm", None)),
        ),
    )


_SINCE = "2.20.2"
"""Transformer Engine whose stateless recipes are known to save an empty tensor."""


@rule(
    "PP193",
    "resume-takes-the-plans-formats",
    "advice",
    stage="run",
    source=(
        "NVIDIA/Megatron-LM#1359",
        megatron("core/optimizer/distrib_optimizer.py"),
    ),
)
def resumed_state(ctx: Context) -> Found:
    """A resumed run casts the saved optimizer state to the formats that the plan asks for.

    Why:
        A distributed checkpoint is loaded into tensors that the new run has made: what was saved
        in FP32 becomes FP16 or BF16 without a word, and the other way round. Resume with the
        formats of the run that saved, and compare the dtypes of the masters after loading.

    Bad:
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true,
                    exp_avg_dtype: fp16, exp_avg_sq_dtype: fp16}
        checkpoint: {load: checkpoints/run}

    Good:
        training: {bf16: true}
        optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true}
        checkpoint: {load: checkpoints/run}
    """
    optimizer, checkpoint = ctx.plan.optimizer, ctx.plan.checkpoint
    if checkpoint.load is None or checkpoint.no_load_optim:
        return None
    if not ctx.args.use_precision_aware_optimizer:
        return None
    low = [
        f"optimizer.{name}"
        for name in ("main_params_dtype", *_MOMENTS)
        if getattr(optimizer, name) not in {None, "fp32"}
    ]
    if not low:
        return None
    return ctx.found(
        f"optimizer state of {checkpoint.load} is loaded as {', '.join(map(ctx.shown, low))}",
        "checkpoint.load",
        *low,
        fix=(set_to(*((name, "fp32") for name in low), also=" if the saving run had it so"),),
    )


OPT_IN = "NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE"
"""Lets Transformer Engine load the pickled state of delayed scaling."""


@rule(
    "PP560",
    "delayed-state-is-not-loaded",
    "warning",
    stage="run",
    source=(
        "transformer-engine@2.18.0:transformer_engine/pytorch/_extra_state.py",
        "transformer-engine@2.20.2:transformer_engine/pytorch/_extra_state.py:98-110",
        "transformer-engine@2.20.2:transformer_engine/pytorch/module/base.py:1428-1435",
    ),
    versions={"transformer_engine": VersionRange("2.18.0")},
)
def delayed_state(ctx: Context) -> Found:
    """A run with delayed scaling cannot resume its own checkpoint.

    Why:
        Delayed scaling saves amax histories and scales as a Python pickle beside the weights.
        From 2.18 on Transformer Engine refuses to load one, because a pickle can run code: the
        run starts, saves, and stops with a RuntimeError when it is started again. Allow it for
        checkpoints that you trust, or train with a recipe that keeps no state.

    Bad:
        software: {framework: megatron-lm, megatron_core: 0.16.1, transformer_engine: 2.18.0}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed}
        checkpoint: {load: checkpoints/run, save: checkpoints/run}

    Good:
        software: {framework: megatron-lm, megatron_core: 0.16.1, transformer_engine: 2.18.0}
        training: {bf16: true, fp8_format: hybrid, fp8_recipe: delayed}
        checkpoint: {load: checkpoints/run, save: checkpoints/run}
        env: {train_actor: {NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE: "1"}}
    """
    args, checkpoint = ctx.args, ctx.plan.checkpoint
    if args.fp8 is None or args.fp8_recipe != "delayed" or ctx.plan.training.fp4_format:
        return None
    if checkpoint.load is None or checkpoint.save is None or ctx.extra("finetune"):
        return None
    if checkpoint.load.rstrip("/") != checkpoint.save.rstrip("/") or ctx.env(OPT_IN) == "1":
        return None
    return ctx.found(
        f"{checkpoint.load} is saved with the pickled state of delayed scaling, and Transformer "
        f"Engine {ctx.target.package('transformer_engine')} refuses to load it",
        "checkpoint.load",
        "checkpoint.save",
        "training.fp8_recipe",
        "software.transformer_engine",
        fix=(
            set_to((f"env.train_actor.{OPT_IN}", "1"), also=" (for checkpoints that you trust)"),
            set_to(("training.fp8_recipe", "tensorwise")),
        ),
    )


RULES: tuple[Rule, ...] = (
    fp8_memory,
    bf16_state,
    layerwise_fp8_parameters,
    stateless_extra_state,
    resumed_state,
    delayed_state,
)
