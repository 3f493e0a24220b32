"""PP73x: folders of training and rollout checkpoints that get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.formats import rollout_format

_ARGUMENTS = "THUDM/slime@624b824a:slime/utils/arguments.py"
_UNQUANTIZED = frozenset({None, "bf16", "fp16", "fp32"})


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.rstrip("/") == other.rstrip("/")


@rule(
    "PP731",
    "restart-does-not-find-its-checkpoint",
    "warning",
    stage="run",
    source=(
        f"{_ARGUMENTS}:1817-1838",
        "vllm-project/vime@95b8bc71:scripts/low_precision/run-qwen3-4b-fp8.sh",
    ),
    frameworks=RL_FRAMEWORKS,
)
def restart(ctx: Context) -> Found:
    """load and save are different folders, so that a restart begins anew.

    Why:
        --load is the run's own checkpoint. If the folder holds none, the framework falls back
        to --ref-load, drops the optimizer state and starts at rollout 0, without a message.
        With another folder than --save that happens at every restart.

    Bad:
        software: {framework: vime}
        checkpoint: {load: runs/a, save: runs/b}

    Good:
        software: {framework: vime}
        checkpoint: {load: runs/a, save: runs/a}
    """
    checkpoint = ctx.plan.checkpoint
    load, save = checkpoint.load, checkpoint.save
    if load is None or save is None or _same(load, save):
        return None
    return ctx.found(
        f"saved to {save}, resumed from {load}",
        "checkpoint.load",
        "checkpoint.save",
        "checkpoint.ref_load",
        fix=(set_to(("checkpoint.load", save)),),
    )


@rule(
    "PP732",
    "save-overwrites-its-source",
    "error",
    stage="run",
    source=(f"{_ARGUMENTS}:306", f"{_ARGUMENTS}:1775-1838"),
)
def overwrites(ctx: Context) -> Iterator[Finding]:
    """Training saves into the folder of the reference model or of the rollout checkpoint.

    Why:
        Both are read again at the next start: the reference would be the trained model, and a
        Hugging Face folder would hold training shards besides the weights that the engine
        loads.

    Bad:
        checkpoint: {ref_load: models/base, save: models/base}

    Good:
        checkpoint: {ref_load: models/base, save: runs/mine}
    """
    checkpoint = ctx.plan.checkpoint
    for name in ("ref_load", "hf_checkpoint"):
        if _same(checkpoint.save, getattr(checkpoint, name)):
            yield ctx.found(
                f"checkpoint.save is the folder of checkpoint.{name}",
                "checkpoint.save",
                f"checkpoint.{name}",
                fix=(Fix("give checkpoint.save a folder of its own"),),
            )


@rule(
    "PP733",
    "save-interval-without-folder",
    "error",
    stage="validate",
    source=("vllm-project/vime@035f9834:vime/utils/arguments.py", f"{_ARGUMENTS}:1775"),
    frameworks=RL_FRAMEWORKS,
)
def interval(ctx: Context) -> Found:
    """save_interval is set and save is not.

    Why:
        The frameworks refuse the one without the other.

    Bad:
        software: {framework: vime}
        checkpoint: {save_interval: 20}

    Good:
        software: {framework: vime}
        checkpoint: {save_interval: 20, save: runs/mine}
    """
    checkpoint = ctx.plan.checkpoint
    if checkpoint.save_interval is None or checkpoint.save is not None:
        return None
    return ctx.found(
        "checkpoint.save_interval without checkpoint.save",
        "checkpoint.save_interval",
        "checkpoint.save",
        fix=(set_to(("checkpoint.save_interval", None)),),
    )


@rule(
    "PP734",
    "training-starts-from-quantized-weights",
    "error",
    stage="run",
    source=(
        "vllm-project/vime@8c1c944:docs/en/advanced/low-precision.md",
        f"{_ARGUMENTS}:1817-1838",
    ),
    frameworks=RL_FRAMEWORKS,
)
def quantized_start(ctx: Context) -> Iterator[Finding]:
    """The trainer is pointed at the quantized rollout checkpoint.

    Why:
        Training needs the weights in BF16 (torch_dist); the rollout's copy has lost them to
        rounding and packing. ref_load and load name the training checkpoint, hf_checkpoint the
        quantized one.

    Bad:
        software: {framework: vime}
        checkpoint:
          {hf_weight_format: int4, hf_checkpoint: models/m-INT4, ref_load: models/m-INT4}

    Good:
        software: {framework: vime}
        checkpoint:
          {hf_weight_format: int4, hf_checkpoint: models/m-INT4, ref_load: models/m_torch_dist}
    """
    checkpoint = ctx.plan.checkpoint
    if checkpoint.hf_checkpoint is None or rollout_format(ctx.plan) in _UNQUANTIZED:
        return
    for name in ("ref_load", "load"):
        if _same(getattr(checkpoint, name), checkpoint.hf_checkpoint):
            yield ctx.found(
                f"checkpoint.{name} is the quantized rollout checkpoint",
                f"checkpoint.{name}",
                "checkpoint.hf_checkpoint",
                fix=(Fix(f"name the BF16 torch_dist checkpoint in checkpoint.{name}"),),
            )


RULES: tuple[Rule, ...] = (restart, overwrites, interval, quantized_start)
