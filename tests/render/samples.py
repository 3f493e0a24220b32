"""A small compiled recipe with a bit of everything, made by hand."""

from __future__ import annotations

from dataclasses import replace

from precision_plan.plan import (
    Because,
    Diagnostic,
    Fix,
    Item,
    Lowering,
    Origin,
    PrecisionPlan,
    Reason,
    Role,
)
from precision_plan.plan.compiled import Compiled, LintReport
from precision_plan.plan.lowering import (
    CheckpointLowering,
    MegatronLowering,
    RayLowering,
    TransformerEngineLowering,
    VllmLowering,
)

RECIPE = "conf/recipes/my-mxfp8.yaml"

PLAN = PrecisionPlan.model_validate(
    {
        "recipe": {
            "title": "A model in MXFP8, with a title that is long enough to be wrapped on a line",
            "maturity": "experimental",
        },
        "hardware": {"gpu": "h200", "nodes": 2, "gpus_per_node": 8},
        "software": {"framework": "vime", "megatron_core": "0.16.1"},
        "training": {"fp8_recipe": "mxfp8", "fp8_format": "e4m3"},
        "env": {"all": {"HF_TOKEN": "hf_abcdefghij", "NCCL_DEBUG": "INFO"}},
        "origins": {
            "recipe": Origin(RECIPE, 3, 1, "recipe"),
            "training.fp8_recipe": Origin(RECIPE, 14, 3, "recipe"),
            "training.fp8_format": Origin(RECIPE, 15, 3, "recipe"),
            "hardware.gpu": Origin("conf/hardware/h200.yaml", 1, 1, "hardware=h200"),
        },
    }
)

ERROR = Diagnostic(
    id="PP204",
    slug="mxfp8-needs-sm100",
    severity="error",
    message="training.fp8_recipe = mxfp8 needs compute capability 10.0 up to 12.0; "
    "the target h200 has 9.0",
    field="training.fp8_recipe",
    origin=Origin(RECIPE, 14, 3, "recipe"),
    because=(Because("hardware.gpu = h200", "hardware.gpu", Origin("conf/hardware/h200.yaml", 1)),),
    fix=(
        Fix("training.fp8_recipe: blockwise", {"training.fp8_recipe": "blockwise"}),
        Fix("hardware: b200"),
    ),
    source=("NVIDIA/TransformerEngine@v2.10:transformer_engine/pytorch/quantization.py:57",),
    stage="te_hardware",
)
WARNING = Diagnostic(
    id="PP013",
    slug="recipe-without-title",
    severity="warning",
    message="the recipe names no source",
    origin=Origin(RECIPE),
)
ADVICE = Diagnostic(
    id="PP133",
    slug="a-slug-that-is-as-long-as-slugs-may-ever-become",
    severity="advice",
    message="a framework takes another value in silence",
    field="training.fp8_format",
    origin=Origin("conf/recipes/a-folder-with-a-long-name/and-a-recipe.yaml", 120, 11),
    because=(Because("first premise"), Because("second premise, without a position")),
    fix=(
        Fix("write a value that is long enough not to share its line with the next way out"),
        Fix("leave it"),
    ),
    resolved={"bf16": False, "fp16": True},
)

LOWERING = Lowering(
    megatron=MegatronLowering(
        argv=("--fp8-format", "e4m3", "--fp8-recipe", "mxfp8", "--wandb-key", "0123456789"),
        settings={"TransformerConfig": {"fp8": "e4m3"}},
        items=(
            Item(
                "--fp8-format",
                "e4m3",
                Reason("training.fp8_format = e4m3", "training.fp8_format"),
            ),
            Item("--fp8-recipe", "mxfp8", Reason("training.fp8_recipe = mxfp8",
                                                 "training.fp8_recipe")),
            Item("--bf16", True, Reason("the framework sets it", None, "a/b@1:c.py:3")),
            Item("--wandb-key", "0123456789", Reason("launch.extra_args")),
        ),
    ),
    transformer_engine=TransformerEngineLowering(
        recipe="MXFP8BlockScaling",
        kwargs={"fp8_format": "E4M3"},
        items=(Item("fp8_format", "E4M3", Reason("training.fp8_format = e4m3",
                                                 "training.fp8_format")),),
    ),
    ray=RayLowering(
        runtime_env={
            "env_vars": {
                "HF_TOKEN": "hf_abcdefghij",
                "NCCL_DEBUG": "INFO",
                "REGISTRY": "https://user:pass@host/x",
            }
        },
        roles={"driver": {"HF_TOKEN": "hf_abcdefghij", "NCCL_DEBUG": "INFO"}},
        items=(Item("NCCL_DEBUG", "INFO", Reason("env.all.NCCL_DEBUG = INFO",
                                                 "env.all.NCCL_DEBUG")),),
    ),
    vllm=VllmLowering(
        args={"kv_cache_dtype": "fp8_e4m3"},
        argv=("--kv-cache-dtype", "fp8_e4m3"),
        passthrough=("--vllm-kv-cache-dtype", "fp8_e4m3"),
    ),
    checkpoint=CheckpointLowering(quantization_config={"quant_method": "fp8"}),
    roles=(
        Role("train weights", "bf16", 2.0, "training.bf16"),
        Role("GEMM inputs, forward", "mxfp8", 1.03125, "training.fp8_recipe = mxfp8"),
        Role("activations", "unknown", None, "not declared"),
    ),
)  # fmt: skip

COMPILED = Compiled(
    name="my-mxfp8",
    plan=PLAN,
    diagnostics=(ERROR, WARNING, ADVICE),
    lowering=LOWERING,
    fingerprint=PLAN.fingerprint(),
    rules_checked=64,
    unchecked={"PP211": ("vllm",), "PP212": ("gpu", "vllm")},
    seconds=0.21,
)
CLEAN = replace(COMPILED, diagnostics=(), unchecked={})
REPORT = LintReport(
    diagnostics=(ERROR, ADVICE),
    files=(RECIPE, "conf/recipes/other.yaml"),
    rules_checked=64,
    unchecked={},
    seconds=0.5,
    skipped=("conf/notes.yaml",),
)
