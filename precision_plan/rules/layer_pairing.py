"""PP542 and PP543: modules that trainer, weight update and rollout checkpoint leave unquantized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.te_modules import module_names
from precision_plan.facts.weight_sync import SyncModules, sync_modules, sync_quantizer
from precision_plan.plan import Because, Fix
from precision_plan.plan.layer_map import INLINE, LayerMap
from precision_plan.plan.model_modules import EXPERT
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.by_module import configuration

_MILES = "radixark/miles@31f1ca96"
_EXTRA = "weight_sync.extra_high_precision_layers_megatron"
_EXTRA_HF = "weight_sync.extra_high_precision_layers_hf"


@rule(
    "PP542",
    "modules-differ-between-sides",
    "warning",
    stage="run",
    source=(
        "radixark/miles#614",
        f"{_MILES}:scripts/run_joy_ai_llm_flash.py",
        f"{_MILES}:miles/backends/megatron_utils/megatron_to_hf/processors/"
        "quantizer_mxfp8.py:28-37",
    ),
    frameworks=RL_FRAMEWORKS,
)
def sides_differ(ctx: Context) -> Iterator[Finding]:
    """The trainer keeps other modules in BF16 than the rollout engine gets.

    Why:
        A per-module configuration exempts modules in the trainer alone. The weight update
        quantizes by a list of its own, less the names in
        ``extra_high_precision_layers_megatron``, which in turn mean nothing to the trainer. Where
        the two differ, one side rounds what the other does not, in silence.

    Bad:
        software: {framework: miles}
        model: {num_layers: 4}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {proj: {config: bf16, pattern: "*.linear_proj", enabled: true}}
        checkpoint: {quantization_config: {quant_method: mxfp8}}

    Good:
        software: {framework: miles}
        model: {num_layers: 4}
        training:
          fp8_format: e4m3
          fp8_recipe: mxfp8
          te_precision_config:
            configs: {bf16: {training_recipe: {}}}
            matchers: {proj: {config: bf16, pattern: "*.linear_proj", enabled: true}}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
        weight_sync:
          extra_high_precision_layers_hf: [.o_proj.]
          extra_high_precision_layers_megatron: [.self_attention.linear_proj]
    """
    extra = ctx.plan.weight_sync.extra_high_precision_layers_megatron or ()
    if configuration(ctx) is None and not extra:
        return
    update, layers = _update(ctx), ctx.layers
    if update is None or layers is None or not layers.decoder:
        return
    base = layers.base
    trained, kept = _sides(ctx, layers, update, extra)
    if not any(format not in (base, None) for format in trained.values()):
        return
    plain = [name for name, format in trained.items() if format == base and name not in kept]
    if plain and configuration(ctx) is not None:
        names = [*extra, *(f".{name}" for name in plain)]
        fix = Fix("quantize them in training, too")
        yield ctx.found(
            f"{_train(plain)} in {base}, but not in the rollout, which gets {update.emits}",
            INLINE,
            Because(f"the {update.emits} weight update of {ctx.target.framework}"),
            fix=(set_to((_EXTRA, names)), fix) if update.extra_high_precision else (fix,),
        )
    rounded = [name for name in kept if trained[name] not in (base, None)]
    if rounded:
        yield ctx.found(
            f"{_train(rounded)} in {trained[rounded[0]]}, but not in the rollout, which gets "
            f"{base}",
            _EXTRA,
            Because("the trainer does not read this list"),
            fix=(Fix(f"exempt them in {INLINE}, too"),),
        )


def _update(ctx: Context) -> SyncModules | None:
    """What the weight update quantizes, by framework and method of the checkpoint."""
    config, framework = ctx.plan.checkpoint.quantization_config, ctx.target.framework
    if config is None or config.quant_method is None or framework is None:
        return None
    branch = sync_quantizer(framework, config.quant_method, config.quant_algo)
    return None if branch is None else sync_modules(framework, branch.emits)


def _sides(
    ctx: Context, layers: LayerMap, update: SyncModules, extra: Iterable[str]
) -> tuple[dict[str, str | None], list[str]]:
    """Format in training of the modules that the update knows, and those it leaves alone.

    A middle layer stands for all: the first and last ones are exempt on both sides.
    """
    names = module_names(update.kinds, ctx.effective.megatron_core)
    trained: dict[str, str | None] = {}
    for layer in layers.decoder[len(layers.decoder) // 2 :] + layers.decoder:
        for name, found in layer.items():
            if name.replace("*", EXPERT) in names:
                trained.setdefault(name, found.format)
    kept = [
        name
        for name in trained
        if update.extra_high_precision
        and any(part in f"module.module.decoder.layers.0.{name}.weight" for part in extra)
    ]
    return trained, kept


def _train(names: list[str]) -> str:
    """``a, b and 2 more train``."""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"modules {shown} train" if len(names) > 1 else f"module {shown} trains"


@rule(
    "PP543",
    "exempt-modules-on-one-side",
    "warning",
    stage="run",
    source=(
        "radixark/miles#614",
        f"{_MILES}:miles/utils/arguments.py:376-390",
        f"{_MILES}:tools/convert_hf_to_mxfp8.py:26-60",
    ),
    frameworks=RL_FRAMEWORKS,
)
def one_list(ctx: Context) -> Found:
    """Modules are exempt in the checkpoint or in the weight update, not in both.

    Why:
        ``extra_high_precision_layers_hf`` names modules, as the checkpoint does, that the
        converter leaves alone; ``extra_high_precision_layers_megatron`` names them, as the trainer
        does, for the weight update. With one list alone the engine holds a BF16 parameter that
        gets quantized bytes, or the other way round.

    Bad:
        software: {framework: miles}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
        weight_sync: {extra_high_precision_layers_hf: [.kv_b_proj.]}

    Good:
        software: {framework: miles}
        checkpoint: {quantization_config: {quant_method: mxfp8}}
        weight_sync:
          extra_high_precision_layers_hf: [.kv_b_proj.]
          extra_high_precision_layers_megatron: [.linear_kv_up_proj]
    """
    sync, update = ctx.plan.weight_sync, _update(ctx)
    if update is None or not update.extra_high_precision:
        return None
    given = sync.extra_high_precision_layers_hf, sync.extra_high_precision_layers_megatron
    if bool(given[0]) == bool(given[1]):
        return None
    field, other = (_EXTRA_HF, _EXTRA) if given[0] else (_EXTRA, _EXTRA_HF)
    reader = "weight update" if given[0] else "converter"
    return ctx.found(
        f"{ctx.shown(field)} does not reach the {reader}",
        field,
        other,
        Because(f"the {update.emits} weight update of {ctx.target.framework}"),
        fix=(Fix(f"name the same modules in {other}"), set_to((field, None))),
    )


RULES: tuple[Rule, ...] = (sides_differ, one_list)
