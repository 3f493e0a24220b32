"""What ``--te-precision-config-file`` holds: recipes by name, and which modules take which one.

The sections have the keys of the file, so that a file can be pasted below
``training.te_precision_config`` (``NVIDIA/Megatron-LM@core_v0.16.1:megatron/core/quantization/
quant_config.py``, ``.../extensions/transformer_engine.py:89``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Literal

from precision_plan.plan import dtypes as d
from precision_plan.plan.base import Section


class TeQuantizationRecipe(Section):
    """How a module computes. Without an FP8 and an FP4 recipe it computes in the base format.

    ``override_quantized_autocast`` (true in Megatron) says whether the recipe replaces the model's
    where that quantizes, ``override_nonquantized_autocast`` (false in Megatron) whether it also
    holds in layers that are not quantized.
    """

    fp8_quantization_recipe: d.Fp8Recipe | None = None
    fp4_quantization_recipe: d.Fp4Recipe | None = None
    custom_recipe_factory: str | None = None
    fp8_format: d.Fp8Format | None = None
    override_quantized_autocast: bool | None = None
    override_nonquantized_autocast: bool | None = None
    tp_only_amax_red: bool | None = None
    fp8_param: bool | None = None
    fp4_param: bool | None = None

    @property
    def quantizes(self) -> bool:
        """True if it names a recipe; an empty one keeps the base format."""
        return not (self.fp8_quantization_recipe is None and self.fp4_quantization_recipe is None)

    def overrides(self, quantized: bool) -> bool:
        """True if it holds in a layer that is ``quantized`` (or not) by the model's own recipe."""
        if quantized:
            return self.override_quantized_autocast is not False
        return self.override_nonquantized_autocast is True


class TeQuantizationParams(Section):
    """One named configuration: a recipe for training, and one for evaluation if it differs."""

    transformer_engine_config_type: Literal["TEQuantizationParams"] | None = None
    training_recipe: TeQuantizationRecipe | None = None
    evaluation_recipe: TeQuantizationRecipe | None = None

    def recipes(self) -> Iterator[tuple[str, TeQuantizationRecipe]]:
        """The recipes that are given, by key."""
        for name in ("training_recipe", "evaluation_recipe"):
            recipe = getattr(self, name)
            if recipe is not None:
                yield name, recipe


class TeMatcher(Section):
    """Gives a configuration to the modules whose name fits ``pattern``.

    A matcher that does not say ``enabled: true`` is off, as in Megatron.
    """

    config: str | None = None
    type: Literal["glob"] | None = None
    pattern: str | None = None
    enabled: bool | None = None

    def fits(self, module: str) -> bool:
        """True if the pattern fits the whole name of a module (``*`` also spans dots)."""
        return self.pattern is not None and fnmatchcase(module, self.pattern)


class TePrecisionConfig(Section):
    """Configurations by name, and matchers in order: the first one that fits decides."""

    configs: Mapping[str, TeQuantizationParams] | None = None
    matchers: Mapping[str, TeMatcher] | None = None

    def active(self) -> Iterator[tuple[str, TeMatcher]]:
        """The matchers that Megatron reads, in order."""
        for name, matcher in (self.matchers or {}).items():
            if matcher.enabled:
                yield name, matcher

    def match(self, module: str) -> tuple[str, TeMatcher] | None:
        """Name and matcher that decide for a module; ``None`` if it keeps the model's recipe."""
        return next(
            ((name, matcher) for name, matcher in self.active() if matcher.fits(module)), None
        )

    def used(self) -> Mapping[str, TeQuantizationParams]:
        """The configurations that a matcher asks for."""
        wanted = {matcher.config for _, matcher in self.active()}
        return {name: config for name, config in (self.configs or {}).items() if name in wanted}
