"""TE's hardware verdict on the plan's recipe, and how rules word it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from precision_plan.facts.transformer_engine import TeSupport, te_support
from precision_plan.facts.versions import version
from precision_plan.plan import Fix

if TYPE_CHECKING:
    from precision_plan.rules.base import Context

PER_TENSOR = {
    "delayed": "DelayedScaling",
    "tensorwise": "Float8CurrentScaling",
    "custom": "CustomRecipe",
}
B200 = Fix("hardware: b200", {"hardware.gpu": "b200"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why TE would not enter a recipe: the capability is out of range, or CUDA is too old."""

    bounds: str
    cuda: str | None = None


@lru_cache(maxsize=1024)
def refusal(
    recipe: str, capability: tuple[int, int], cuda: str | None, transformer_engine: str | None
) -> Refusal | None:
    """TE's verdict on a recipe class, or ``None`` if it accepts or too little is known.

    A TE version that lacks the class is another rule's business and gives ``None``.
    """
    rows = [
        row
        for row in te_support()
        if row.recipe == recipe
        and (transformer_engine is None or transformer_engine in row.versions)
    ]
    covering = [row for row in rows if row.covers(capability)]
    if not covering:
        return Refusal(_bounds(rows)) if rows else None
    if cuda is None or any(_cuda_suffices(row, cuda) for row in covering):
        return None
    return Refusal(_bounds(rows), cuda=covering[0].min_cuda)


def _cuda_suffices(row: TeSupport, cuda: str) -> bool:
    return row.min_cuda is None or version(cuda) >= version(row.min_cuda)


def _bounds(rows: list[TeSupport]) -> str:
    least = "{}.{}".format(*min(row.min_cc for row in rows))
    tops = [row.below_cc for row in rows]
    if None in tops:
        return f"compute capability {least} or later"
    return "compute capability {} up to {}.{}".format(least, *max(t for t in tops if t))


def recipe_of(ctx: Context) -> str | None:
    """Class of the recipe that Megatron would build for the model; ``None`` without FP8 or FP4."""
    args = ctx.args
    if args.fp4:
        return "NVFP4BlockScaling" if args.fp4_recipe == "nvfp4" else "CustomRecipe"
    if not args.fp8:
        return None
    classes = {"blockwise": "Float8BlockScaling", "mxfp8": "MXFP8BlockScaling", **PER_TENSOR}
    return classes.get(args.fp8_recipe)


def verdict(ctx: Context) -> Refusal | None:
    """TE's verdict on the plan's recipe and target."""
    recipe = recipe_of(ctx)
    target = ctx.target
    if recipe is None or target.compute_capability is None:
        return None
    return refusal(
        recipe,
        target.compute_capability,
        target.package("cuda"),
        target.package("transformer_engine"),
    )


def has_capability(ctx: Context) -> str:
    """``the target h200 has 9.0``."""
    target = ctx.target
    text = "{}.{}".format(*target.compute_capability) if target.compute_capability else target.gfx
    name = f"the target {target.gpu}" if target.gpu else "the target"
    return f"{name} has {text}" if text else f"{name} runs on {target.platform}"


def gpu_field(ctx: Context) -> str:
    """The plan field that decides what the GPU can do."""
    hardware = ctx.plan.hardware
    if hardware.compute_capability is not None:
        return "hardware.compute_capability"
    return "hardware.gpu" if hardware.gpu is not None else "hardware.platform"
