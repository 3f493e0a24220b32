"""Transformer Engine (TE): recipes and their fields, hardware checks, FusedAdam, ROCm fork."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.versions import VersionRange, version

Capability = tuple[int, int]


class TeField(NamedTuple):
    """One constructor field of a recipe class.

    ``allowed`` lists the accepted values, ``None`` means any of ``type``; ``minimum`` is the
    least number, and ``unshared`` a value that only one field of the recipe may have. ``env`` is
    the variable whose value, read when TE is imported, is the default (in capitals with
    ``env_upper``); with ``env_only`` the constructor argument has no reliable effect.
    """

    recipe: str
    name: str
    type: str
    default: Any
    versions: VersionRange
    source: str
    allowed: tuple[Any, ...] | None = None
    env: str | None = None
    env_only: bool = False
    required: bool = False
    minimum: int | None = None
    unshared: Any = None
    env_upper: bool = False
    note: str | None = None

    def default_in(self, env: Mapping[str, str]) -> Any:
        """The default in a process with this environment; a switch is on if its text is ``1``."""
        if self.env is None or self.env not in env:
            return self.default
        text = env[self.env]
        if self.type == "bool":
            return text == "1"
        return text.upper() if self.env_upper else text

    def accepts(self, value: Any) -> bool:
        """Whether the constructor takes a value of the field's type."""
        if value is None or callable(value):
            return self.default is None if value is None else "callable" in self.type
        if self.minimum is not None and value < self.minimum:
            return False
        return self.allowed is None or value in self.allowed


class TeRecipe(NamedTuple):
    """One recipe class.

    ``selector`` and ``value`` are Megatron's flag (``fp8_recipe`` or ``fp4_recipe``) and its
    value; ``megatron_te_minimum`` is the TE version that Megatron demands for it (``None``: no
    demand). ``format`` is the number format of the GEMM inputs.
    """

    name: str
    selector: Literal["fp8_recipe", "fp4_recipe"]
    value: str
    format: str | None
    stateful: bool
    scaling: str
    megatron_te_minimum: str | None
    versions: VersionRange
    source: str
    fields: tuple[TeField, ...] = ()

    def fields_at(self, transformer_engine: str) -> Mapping[str, TeField]:
        """The fields that exist at one TE version, by name."""
        present = (item for item in self.fields if transformer_engine in item.versions)
        return MappingProxyType({item.name: item for item in present})

    def refused(
        self,
        transformer_engine: str,
        env: Mapping[str, str],
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[TeField, ...]:
        """The fields for whose values the constructor raises.

        ``given`` holds constructor arguments by name; the others have the defaults of ``env``.
        """
        fields = self.fields_at(transformer_engine)
        values = {name: item.default_in(env) for name, item in fields.items()} | dict(given)
        found = []
        for name, item in fields.items():
            twins = [
                other
                for other in fields.values()
                if other.unshared is not None and values[other.name] == other.unshared
            ]
            missing = item.required and name not in given
            if missing or not item.accepts(values[name]) or (item in twins and len(twins) > 1):
                found.append(item)
        return tuple(found)


def _in_range(found: Capability, min_cc: Capability, below_cc: Capability | None) -> bool:
    """True if ``min_cc <= found < below_cc``; no upper bound if that is ``None``."""
    return min_cc <= found and (below_cc is None or found < below_cc)


class TeSupport(NamedTuple):
    """Where TE lets a forward pass enter a recipe; ``min_cuda`` is the CUDA torch was built for.

    ``min_cc`` is inclusive, ``below_cc`` exclusive.
    """

    min_cc: Capability
    below_cc: Capability | None
    versions: VersionRange
    source: str
    recipe: str = ""
    min_cuda: str | None = None
    note: str | None = None

    def covers(self, compute_capability: Capability) -> bool:
        """True if ``compute_capability`` lies in the range."""
        return _in_range(compute_capability, self.min_cc, self.below_cc)


class BlockScaleRow(NamedTuple):
    """Values of ``NVTE_FP8_BLOCK_SCALING_FP32_SCALES`` that work; none: the recipe is refused.

    ``min_cc`` is inclusive, ``below_cc`` exclusive.
    """

    min_cc: Capability
    below_cc: Capability | None
    versions: VersionRange
    source: str
    allowed: tuple[str, ...] = ()
    fp32_scales: bool = False
    effect: str = ""

    def covers(self, compute_capability: Capability) -> bool:
        """True if ``compute_capability`` lies in the range."""
        return _in_range(compute_capability, self.min_cc, self.below_cc)


class Nvfp4Sm12x(NamedTuple):
    """NVFP4 training on compute capability 12.x at a range of TE versions.

    ``default_recipe`` tells what happens without options: it ``works``, ``fails`` or is
    ``silent`` (trains on wrong gradients). ``needs`` are the recipe fields to set, and
    ``grouped_needs`` those for models with grouped linear layers (routed experts).
    """

    default_recipe: Literal["works", "fails", "silent"]
    needs: tuple[str, ...]
    grouped_needs: tuple[str, ...]
    effect: str
    versions: VersionRange
    source: str


class AdamOption(NamedTuple):
    """Accepted values of one option of TE's FusedAdam, in the plan's spelling of dtypes."""

    option: str
    values: tuple[Any, ...]
    default: Any
    versions: VersionRange
    source: str
    note: str | None = None


class RocmSupport(NamedTuple):
    """Where the ROCm fork of TE accepts a recipe; ``env`` maps a needed variable to its values."""

    recipe: str
    gfx: tuple[str, ...]
    versions: VersionRange
    source: str
    env: Mapping[str, tuple[str, ...]] | None = None
    note: str | None = None


@lru_cache(maxsize=1)
def te_recipes() -> Mapping[str, TeRecipe]:
    """Every recipe class by name."""
    fields: dict[str, list[TeField]] = {}
    for row in table("te_fields"):
        fields.setdefault(row["recipe"], []).append(record(TeField, row))
    return MappingProxyType(
        {
            row["name"]: record(TeRecipe, {**row, "fields": tuple(fields[row["name"]])})
            for row in table("te_recipes")
        }
    )


def recipe_class(fp8_recipe: str | None = None, fp4_recipe: str | None = None) -> str | None:
    """Name of the recipe class that Megatron builds; an FP4 recipe takes precedence.

    ``None`` if neither names a recipe. A custom FP4 recipe is a ``CustomRecipe``, too.
    """
    wanted = fp4_recipe or fp8_recipe
    if wanted == "custom":
        return "CustomRecipe"
    for row in table("te_recipes"):
        if row["value"] == wanted:
            return str(row["name"])
    return None


def _capability_rows(kind: type, name: str) -> tuple[Any, ...]:
    rows: list[Any] = []
    for row in table(name):
        below = row["below_cc"]
        bounds = {
            "min_cc": parse_capability(row["min_cc"]),
            "below_cc": parse_capability(below) if below else None,
        }
        rows.append(record(kind, {**row, **bounds}))
    return tuple(rows)


@lru_cache(maxsize=1)
def te_support() -> tuple[TeSupport, ...]:
    """TE's own hardware checks: a recipe is accepted where any of its rows holds."""
    return _capability_rows(TeSupport, "te_support")


@lru_cache(maxsize=1)
def block_scale_rows() -> tuple[BlockScaleRow, ...]:
    """What ``NVTE_FP8_BLOCK_SCALING_FP32_SCALES`` may be, by capability and TE version."""
    return _capability_rows(BlockScaleRow, "te_block_scales")


@lru_cache(maxsize=1)
def nvfp4_sm12x() -> tuple[Nvfp4Sm12x, ...]:
    """NVFP4 training on 12.x by TE version."""
    return tuple(record(Nvfp4Sm12x, row) for row in table("te_nvfp4_sm12x"))


@lru_cache(maxsize=1)
def fused_adam_options() -> tuple[AdamOption, ...]:
    """Options of FusedAdam by TE version."""
    return tuple(record(AdamOption, row) for row in table("te_fused_adam"))


@lru_cache(maxsize=1)
def rocm_support() -> Mapping[str, RocmSupport]:
    """The ROCm fork's checks by recipe class."""
    return MappingProxyType({row["recipe"]: record(RocmSupport, row) for row in table("te_rocm")})


def te_accepts(
    recipe: str,
    compute_capability: Capability | None,
    cuda: str | None = None,
    transformer_engine: str | None = None,
) -> bool | None:
    """Whether TE on CUDA lets a forward pass enter ``recipe``; ``None`` if that is unknown.

    What is not known (``None``) counts as unknown: the answer is given only if it is the same
    for every value. Acceptance does not mean that training works (:func:`nvfp4_sm12x`).

    Raises:
        KeyError: if ``recipe`` is not a recipe class.
    """
    rows = [row for row in te_support() if row.recipe == recipe]
    if not rows:
        raise KeyError(recipe)
    answers = [_row_accepts(row, compute_capability, cuda, transformer_engine) for row in rows]
    if True in answers:
        return True
    return None if None in answers else False


def _row_accepts(
    row: TeSupport, compute_capability: Capability | None, cuda: str | None, te: str | None
) -> bool | None:
    if te is not None and te not in row.versions:
        return False
    if compute_capability is not None and not row.covers(compute_capability):
        return False
    if cuda is not None and row.min_cuda is not None and version(cuda) < version(row.min_cuda):
        return False
    unknown = (
        te is None or compute_capability is None or (cuda is None and row.min_cuda is not None)
    )
    return None if unknown else True


@lru_cache(maxsize=1)
def gemm_multiples() -> Mapping[str, int]:
    """What both dimensions of a quantized weight must be a multiple of, by number format."""
    return MappingProxyType({row["format"]: row["multiple"] for row in table("te_gemm_multiples")})
