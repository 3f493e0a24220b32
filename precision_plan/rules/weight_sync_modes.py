"""PP536 to PP539: how the weight update travels, and what an export mode leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.plan import Because, Fix
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to, shown


@rule(
    "PP536",
    "delta-sync-unavailable",
    "error",
    stage="validate",
    source=(
        "THUDM/slime@624b824a:slime/utils/arguments.py:2059-2080",
        "vllm-project/vime@035f9834:vime/utils/arguments.py",
    ),
    frameworks=("vime", "slime"),
)
def delta_unavailable(ctx: Context) -> Found:
    """Delta weight updates are not available in this combination.

    Why:
        vime raises NotImplementedError for update_weight_mode delta. slime needs the disk
        transport for it and refuses it with --colocate.

    Bad:
        software: {framework: slime}
        weight_sync: {update_weight_mode: delta, update_weight_transport: nccl}

    Good:
        software: {framework: slime}
        weight_sync:
          {update_weight_mode: delta, update_weight_transport: disk, update_weight_disk_dir: /w}
    """
    sync = ctx.plan.weight_sync
    if sync.update_weight_mode != "delta":
        return None
    if ctx.target.framework == "vime":
        field, text = "software.framework", "vime has no delta updates"
    elif sync.update_weight_transport != "disk":
        field, text = "weight_sync.update_weight_transport", "slime's delta updates go through disk"
    elif ctx.plan.launch.colocate:
        field, text = "launch.colocate", "slime's delta updates exclude colocation"
    else:
        return None
    return ctx.found(
        text,
        "weight_sync.update_weight_mode",
        field,
        fix=(set_to(("weight_sync.update_weight_mode", "full")),),
    )


@rule(
    "PP537",
    "disk-sync-needs-a-folder",
    "error",
    stage="validate",
    source=("THUDM/slime@624b824a:slime/utils/arguments.py:153",),
    frameworks=("vime", "slime"),
)
def disk_folder(ctx: Context) -> Found:
    """Weight updates through disk need update_weight_disk_dir.

    Why:
        Trainer and engine meet in that folder; both frameworks refuse to start without it.

    Bad:
        software: {framework: vime}
        weight_sync: {update_weight_transport: disk}

    Good:
        software: {framework: vime}
        weight_sync: {update_weight_transport: disk, update_weight_disk_dir: checkpoints/updates}
    """
    sync = ctx.plan.weight_sync
    if sync.update_weight_transport != "disk" or sync.update_weight_disk_dir is not None:
        return None
    return ctx.found(
        "update_weight_transport = disk without a folder",
        "weight_sync.update_weight_transport",
        "weight_sync.update_weight_disk_dir",
        fix=(Fix("weight_sync.update_weight_disk_dir: a folder that all nodes share"),),
    )


@rule(
    "PP538",
    "gpt-oss-needs-bridge",
    "error",
    stage="run",
    source=("THUDM/slime#1840",),
    frameworks=RL_FRAMEWORKS,
)
def gpt_oss_bridge(ctx: Context) -> Found:
    """GPT-OSS is exported correctly in bridge mode only.

    Why:
        The raw converter neither interleaves gate and up projections of the experts nor
        transposes the down projection. In the 20B model hidden and intermediate size are
        equal, so the shapes fit and the rollout turns to gibberish after the first update.

    Bad:
        software: {framework: vime}
        model: {hf_architecture: GptOssForCausalLM}

    Good:
        software: {framework: vime}
        model: {hf_architecture: GptOssForCausalLM}
        weight_sync: {megatron_to_hf_mode: bridge}
    """
    architecture = ctx.plan.model.hf_architecture
    if architecture is None or not architecture.startswith("GptOss"):
        return None
    mode = ctx.plan.weight_sync.megatron_to_hf_mode
    if mode == "bridge" or (mode is None and ctx.target.framework == "slime"):
        return None
    return ctx.found(
        f"{architecture} is exported wrongly in raw mode",
        "weight_sync.megatron_to_hf_mode",
        "model.hf_architecture",
        Because("raw is the framework's default") if mode is None else "software.framework",
        fix=(set_to(("weight_sync.megatron_to_hf_mode", "bridge")),),
    )


_NOT_BRIDGED = (
    *("fp4_format", "fp8_param_gather", "first_last_layers_bf16", "num_layers_at_start_in_bf16"),
    *("num_layers_at_end_in_bf16", "fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo"),
    *("fp8_wgrad", "te_precision_config_file", "te_precision_config"),
)
"""Training fields that miles does not copy to the bridge's model provider."""


@rule(
    "PP539",
    "bridge-mode-drops-precision",
    "error",
    stage="build",
    source=("radixark/miles@31f1ca96:miles/backends/megatron_utils/model_provider.py:73-75",),
    frameworks=("miles",),
)
def bridge_drops(ctx: Context) -> Iterator[Finding]:
    """In bridge mode miles hands only fp8 and fp8_recipe to the model.

    Why:
        The bridge builds its own configuration and miles copies single fields into it. FP4,
        FP8 parameters, layers kept in BF16 and the details of the delayed recipe are not
        among them, so the model is built without what the command line asks for.

    Bad:
        software: {framework: miles}
        weight_sync: {megatron_to_hf_mode: bridge}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8, first_last_layers_bf16: true}

    Good:
        software: {framework: miles}
        weight_sync: {megatron_to_hf_mode: bridge}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}
    """
    if ctx.plan.weight_sync.megatron_to_hf_mode != "bridge":
        return
    training = ctx.plan.training
    for name in _NOT_BRIDGED:
        value = getattr(training, name)
        if value is not None and value is not False:
            given = name if name == "te_precision_config" else f"{name} = {shown(value)}"
            yield ctx.found(
                f"training.{given} does not reach the model in bridge mode",
                f"training.{name}",
                "weight_sync.megatron_to_hf_mode",
                fix=(
                    set_to(("weight_sync.megatron_to_hf_mode", "raw")),
                    set_to((f"training.{name}", None)),
                ),
            )


RULES: tuple[Rule, ...] = (delta_unavailable, disk_folder, gpt_oss_bridge, bridge_drops)
