"""The number format of every linear module of every layer, resolved as Megatron resolves it.

Megatron opens the model's recipe layer by layer, except where the first and last layers stay in
the base format; a per-module file may then replace it module by module. Sources:
``NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/fp8_utils.py:513-531``, ``.../fp4_utils.py:120``,
``.../transformer/transformer_block.py:711-760``, ``.../transformer/multi_token_prediction.py:
772-780``, ``.../extensions/transformer_engine.py:205-300``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple

from precision_plan.facts.transformer_engine import recipe_class, te_recipes
from precision_plan.plan.effective import Effective, effective
from precision_plan.plan.model_modules import EXPERT, ModelModules, model_modules
from precision_plan.plan.precision_plan import PrecisionPlan
from precision_plan.plan.target import Target
from precision_plan.plan.te_precision import TePrecisionConfig, TeQuantizationRecipe

FILE = "training.te_precision_config_file"
INLINE = "training.te_precision_config"
_KITCHEN = ("training.kitchen_config_file", "training.kitchen_recipe_number")


class ModuleFormat(NamedTuple):
    """What one module computes in, and why.

    ``format`` is a name of :mod:`precision_plan.facts.formats`, ``evaluation`` the one outside of
    training (the same unless a file says otherwise); ``None`` is unknown. ``field`` is the plan
    field that decides.
    """

    format: str | None
    evaluation: str | None
    because: str
    field: str | None = None


LayerFormats = Mapping[str, ModuleFormat]
"""Module path below the layer -> its format."""


class LayerRange(NamedTuple):
    """Consecutive layers (``first`` to ``last``, counted from 0) whose ``modules`` are alike.

    No modules means all of them.
    """

    block: Literal["decoder", "mtp"]
    first: int
    last: int
    modules: tuple[str, ...]
    resolved: ModuleFormat


class LayerMap(NamedTuple):
    """The formats of the decoder layers and of the multi-token prediction layers.

    ``decoder`` and ``mtp`` are empty where the number of layers is not known. ``default`` is what
    a decoder layer has that nothing exempts, ``base`` the format of what is not quantized.
    ``by_module`` names the plan field of a file that decides for single modules, if there is one;
    ``complete`` is false where the model has layers that the plan does not describe.
    """

    default: ModuleFormat
    base: str
    decoder: tuple[LayerFormats, ...] = ()
    mtp: tuple[LayerFormats, ...] = ()
    by_module: str | None = None
    complete: bool = False

    def ranges(self) -> tuple[LayerRange, ...]:
        """The map in as few rows as say everything."""
        return (*_ranges("decoder", self.decoder), *_ranges("mtp", self.mtp))

    def formats(self, layers: Iterable[int]) -> tuple[str | None, ...]:
        """Formats that occur in training in some decoder layers, in the order of the modules."""
        found = (module.format for layer in layers for module in self.decoder[layer].values())
        return tuple(dict.fromkeys(found))

    @property
    def uniform(self) -> bool:
        """True if every module of every layer has the same format, in evaluation, too."""
        found = {
            (module.format, module.evaluation)
            for layer in (*self.decoder, *self.mtp)
            for module in layer.values()
        }
        return len(found | {(self.default.format, self.default.evaluation)}) == 1


def layer_map(
    plan: PrecisionPlan, target: Target, resolved: Effective | None = None
) -> LayerMap | None:
    """Resolve the formats of ``plan``; ``None`` if the declared program does not train.

    ``resolved`` spares resolving Megatron's arguments again where the caller has them.
    """
    if target.framework == "vllm":
        return None
    resolver = _Resolver(plan, target, resolved or effective(plan, target))
    modules = model_modules(plan, resolver.resolved)
    default = resolver.unknown or resolver.model
    if modules is None:
        return LayerMap(default, resolver.base, by_module=resolver.by_module)
    return LayerMap(
        default=default,
        base=resolver.base,
        by_module=resolver.by_module,
        decoder=tuple(resolver.decoder(modules)),
        mtp=tuple(resolver.mtp(modules)),
        complete=modules.complete,
    )


class _Resolver:
    """Answers for one plan."""

    def __init__(self, plan: PrecisionPlan, target: Target, resolved: Effective) -> None:
        self.plan = plan
        self.target = target
        self.resolved = resolved
        self.base = self._argument("params_dtype") or "fp32"
        self.model = self._model()
        self.quantizes = self.model.format != self.base
        self.unknown = self._unknown()
        self.config = self._config()

    def _argument(self, dest: str) -> Any:
        return getattr(self.resolved.args, dest, None)

    def _decided(self, dest: str) -> str:
        """Who decides an argument: a plan field, a silent override or Megatron's default."""
        override = next((o for o in reversed(self.resolved.overrides) if o.dest == dest), None)
        if override is not None:
            return override.step.because
        field = self.resolved.given.get(dest)
        return field or f"default of Megatron {self.resolved.megatron_core}"

    # The model's own recipe ---------------------------------------------------------------------
    def _model(self) -> ModuleFormat:
        """What a layer computes in that nothing exempts."""
        fp4, fp8 = self._argument("fp4"), self._argument("fp8")
        if self.target.framework == "megadlm":  # its Megatron knows delayed scaling only
            fp4, fp8 = None, self.plan.training.fp8_format
        if not fp4 and not fp8:
            if self.base == "fp32":
                return self._in_base("neither bf16 nor fp16 is set", "params_dtype")
            return self._in_base(self._decided(self.base), self.base)
        if self._argument("transformer_impl") == "local":
            return self._in_base("only Transformer Engine's layers quantize", "transformer_impl")
        if self.target.framework == "megadlm":
            return self._by_class("DelayedScaling", "fp8")
        dest = "fp4_recipe" if fp4 else "fp8_recipe"
        return self._by_class(recipe_class(**{dest: self._argument(dest)}), dest)

    def _by_class(self, name: str | None, dest: str) -> ModuleFormat:
        format = _format_of(name)
        return ModuleFormat(format, format, self._decided(dest), self.resolved.given.get(dest))

    def _in_base(self, because: str, dest: str) -> ModuleFormat:
        return ModuleFormat(self.base, self.base, because, self.resolved.given.get(dest))

    def _exempts(self, layer: int, layers: int) -> bool:
        """True for a first or last layer that keeps the base format."""
        if not self._argument("first_last_layers_bf16") or not self.quantizes:
            return False
        start = self._argument("num_layers_at_start_in_bf16") or 0
        end = self._argument("num_layers_at_end_in_bf16") or 0
        return bool(layer < start or layer >= layers - end)

    # Per-module files ---------------------------------------------------------------------------
    def _unknown(self) -> ModuleFormat | None:
        """The answer for every module where a file decides whose content the plan lacks."""
        for field in (FILE, *_KITCHEN):
            if self.plan.get(field) is None:
                continue
            if field != FILE or self._has_file_flag:
                return ModuleFormat(None, None, field, field)
        return None

    def _config(self) -> TePrecisionConfig | None:
        """The per-module configuration that the trainer is given."""
        return self.plan.training.te_precision_config if self._has_file_flag else None

    @property
    def by_module(self) -> str | None:
        """The field of the file that decides for single modules."""
        if self.unknown is not None:
            return self.unknown.field
        return INLINE if self.config is not None else None

    @property
    def _has_file_flag(self) -> bool:
        """False where Megatron, or its fork, has no ``--te-precision-config-file``."""
        known = hasattr(self.resolved.args, "te_precision_config_file")
        return known and self.target.framework != "megadlm"

    # Layers -------------------------------------------------------------------------------------
    def decoder(self, modules: ModelModules) -> Iterator[LayerFormats]:
        """The decoder layers; those that are alike share one answer."""
        switch = "first_last_layers_bf16"
        layers = len(modules.decoder)
        known: dict[tuple[object, ...], LayerFormats] = {}
        for layer, names in enumerate(modules.decoder):
            exempt = self._exempts(layer, layers)
            numbers = modules.numbers(layer) if self.config is not None else ()
            key = (names, exempt, numbers)
            if key not in known:
                outer = self._in_base(self._decided(switch), switch) if exempt else self.model
                prefixes = [f"decoder.layers.{number}" for number in numbers]
                known[key] = self._layer(names, prefixes, outer, modules)
            yield known[key]

    def mtp(self, modules: ModelModules) -> Iterator[LayerFormats]:
        """Multi-token prediction layers: FP8 without first and last layers, and never FP4."""
        outer = self.model
        if self.quantizes and self._argument("fp4"):
            outer = self._in_base("multi-token prediction layers leave FP4 out", "mtp_num_layers")
        for number, names in enumerate(modules.mtp):
            yield self._layer(names, [f"mtp.layers.{number}"], outer, modules)

    def _layer(
        self, names: Iterable[str], prefixes: list[str], outer: ModuleFormat, modules: ModelModules
    ) -> LayerFormats:
        """Formats of one layer whose own recipe is ``outer``; it has one of several names."""
        found = {}
        for name in names:
            shown = name.replace(EXPERT, "*")
            if self.unknown is not None or self.config is None:
                found[shown] = self.unknown or outer
                continue
            full = (f"{prefix}.{each}" for prefix in prefixes for each in modules.expand(name))
            answers = {self._module(module, outer, self.config) for module in full}
            found[shown] = answers.pop() if len(answers) == 1 else _undecided(answers)
        return found

    def _module(self, name: str, outer: ModuleFormat, config: TePrecisionConfig) -> ModuleFormat:
        """The format of one module by its full name, in a layer whose own recipe is ``outer``."""
        matched = config.match(name)
        if matched is None:
            return outer
        key, matcher = matched
        because, field = f"matcher {key}", f"{INLINE}.matchers.{key}"
        params = (config.configs or {}).get(matcher.config or "")
        if params is None or params.training_recipe is None:
            return ModuleFormat(None, None, because, field)  # Megatron stops here
        training = params.training_recipe
        evaluation = params.evaluation_recipe or training
        quantized = outer.format != self.base
        if not training.overrides(quantized) and not evaluation.overrides(quantized):
            return outer
        return ModuleFormat(
            self._recipe(training, outer.format, quantized),
            self._recipe(evaluation, outer.format, quantized),
            because,
            field,
        )

    def _recipe(
        self, recipe: TeQuantizationRecipe, outer: str | None, quantized: bool
    ) -> str | None:
        if not recipe.overrides(quantized):
            return outer
        if not recipe.quantizes:
            return self.base
        return _format_of(
            recipe_class(recipe.fp8_quantization_recipe, recipe.fp4_quantization_recipe)
        )


def _format_of(name: str | None) -> str | None:
    return te_recipes()[name].format if name is not None else None


def _undecided(answers: Iterable[ModuleFormat]) -> ModuleFormat:
    """The answer where modules that the map does not tell apart have different ones."""
    formats = {answer.format for answer in answers}
    evaluation = {answer.evaluation for answer in answers}
    return ModuleFormat(
        formats.pop() if len(formats) == 1 else None,
        evaluation.pop() if len(evaluation) == 1 else None,
        "matchers tell apart numbers that the map does not",
        INLINE,
    )


# Ranges ---------------------------------------------------------------------------------------
def _ranges(
    block: Literal["decoder", "mtp"], layers: tuple[LayerFormats, ...]
) -> Iterator[LayerRange]:
    for rows, group in groupby(range(len(layers)), lambda layer: _rows(layers[layer])):
        numbers = tuple(group)
        for modules, resolved in rows:
            yield LayerRange(block, numbers[0], numbers[-1], modules, resolved)


def _rows(layer: LayerFormats) -> tuple[tuple[tuple[str, ...], ModuleFormat], ...]:
    """Modules of one layer by format, in the order in which they run."""
    rows: dict[ModuleFormat, list[str]] = {}
    for name, resolved in layer.items():
        rows.setdefault(resolved, []).append(name)
    if len(rows) == 1:
        return (((), next(iter(rows))),)
    return tuple((tuple(names), resolved) for resolved, names in rows.items())
