"""PP62x: values of environment variables against their readers, the GPU and the versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precision_plan.facts.env_readers import PLAIN, STRTOLL, EnvReader, env_readers, misread
from precision_plan.facts.env_vars import EnvVar, env_var, is_secret
from precision_plan.facts.transformer_engine import block_scale_rows, te_recipes
from precision_plan.plan import Because
from precision_plan.plan.diagnostic import Stage
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.unknown import is_reference
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.capability import recipe_of
from precision_plan.rules.environment import declared
from precision_plan.rules.formats import (
    FP32_SCALES,
    INT4_GROUP,
    fake_qat,
    rollout_format,
    train_format,
)

_TE_RECIPES = "transformer-engine@2.20.2:transformer_engine/common/recipe/__init__.py"
_VLLM_ENVS = "vllm@0.33.0:vllm/envs.py"


@rule(
    "PP621",
    "fp32-block-scales-refused",
    "error",
    stage="build",
    source=(
        "NVIDIA/TransformerEngine#2157",
        "NVIDIA/TransformerEngine@d0067d0:transformer_engine/common/transpose/"
        "quantize_transpose_vector_blockwise.cu:533-536",
        "radixark/miles#1584",
        "NovaSky-AI/SkyRL#1898",
        "verl-project/verl#6172",
    ),
    needs=("gpu",),
    hardware="compute capability 10.0 and later",
)
def block_scales(ctx: Context) -> Found:
    """NVTE_FP8_BLOCK_SCALING_FP32_SCALES has a value that the declared GPU cannot run.

    Why:
        Hopper multiplies FP8 blocks with FP32 scales (1) or powers of two (0). From compute
        capability 10.0 on Transformer Engine emulates the recipe with MXFP8, whose scales are
        powers of two: 1 ends in a RuntimeError in the first quantization. vime and slime set 1
        everywhere, miles asks the GPU of the driver process; this project takes the value from
        the declared target and hands it to the actors when the plan does not set it.

    Bad:
        hardware: {gpu: b200}
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
           fp8_block_scaling_fp32_scales: true}

    Good:
        hardware: {gpu: b200}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
    """
    found = ctx.train_env.get(FP32_SCALES)
    capability = ctx.target.compute_capability
    if found is None or capability is None or not ctx.args.fp8:
        return None
    value, field = found
    if train_format(ctx) != "fp8_block" or value not in {"0", "1"}:
        return None
    te = ctx.target.package("transformer_engine")
    rows = [
        row
        for row in block_scale_rows()
        if row.covers(capability) and row.allowed and (te is None or te in row.versions)
    ]
    if not rows or any(value in row.allowed for row in rows):
        return None
    return ctx.found(
        f"{FP32_SCALES}={value} does not run on compute capability "
        f"{capability[0]}.{capability[1]}: {rows[-1].effect}",
        field,
        "hardware.gpu" if ctx.target.gpu else "hardware.compute_capability",
        "training.fp8_recipe",
        fix=(set_to((field, None)), set_to(("training.fp8_recipe", "mxfp8"))),
    )


@rule(
    "PP622",
    "variable-value-refused",
    "error",
    stage="run",
    source=(
        f"{_TE_RECIPES}:302-566",
        f"{_VLLM_ENVS}:401-443",
        "radixark/miles@0208b9a7:miles/utils/fused_nvfp4_qdq.py",
        "NVIDIA/nccl@v2.30.7-1:src/misc/param.cc:93-102",
        "sglang@0.5.23:sglang/srt/environ.py:65-135",
    ),
)
def value_refused(ctx: Context) -> Iterator[Finding]:
    """A variable has a value that its reader refuses or takes for off.

    Why:
        Each switch has a reader of its own. Transformer Engine's recipes compare with the text
        ``1``: ``true``, ``yes`` and ``2`` are off; its attention switches and most of vLLM's go
        through int(), so that ``true`` ends the process; vLLM's ROCm switches take ``true`` and
        ``1``. NCCL takes ``true`` for the number 0 and ``4M`` for 4 without a word, SGLang falls
        back to the default for ``on``. Choices such as the 4over6 scope are compared letter by
        letter. The finding names the expression that reads the value, for the declared version of
        the package.

    Bad:
        env: {train_actor: {NVTE_NVFP4_4OVER6: inputs}}

    Good:
        training: {bf16: true, fp4_format: e2m1}
        env: {train_actor: {NVTE_NVFP4_4OVER6: weights}}
    """
    by_recipe = _refused_by_recipe(ctx)
    for scope, name, value in declared(ctx):
        if is_reference(value) or is_secret(name):
            continue
        complaint = _complaint(ctx, name, value)
        if complaint is None:
            continue
        place = f"env.{scope}.{name}"
        at_once = name in by_recipe and scope in {"all", "train_actor"}
        yield ctx.found(
            f"{name} = {value!r} {complaint.text}",
            place,
            Because(f"read by {complaint.reader}"),
            fix=tuple(set_to((place, text)) for text in _meant(value, complaint.values)),
            stage="te_recipe" if at_once else complaint.stage,
        )


class _Complaint(NamedTuple):
    text: str
    reader: str
    values: tuple[str, ...]
    stage: Stage | None = None


def _complaint(ctx: Context, name: str, value: str) -> _Complaint | None:
    """What is wrong with a value: by the expressions of its readers, else by the listed values."""
    row = env_var(name)
    readers = _readers(ctx, name)
    if readers:
        texts = [(text, reader) for reader in readers if (text := misread(reader, value))]
        if not texts:
            return None
        text, reader = texts[0]
        values = reader.choices or (row.values if row and row.values else ("0", "1"))
        word = value.lower() in _TRUE | _FALSE
        number = reader.reads in {"int(x)", "float(x)", "json.loads(x)"}
        number = number or (reader.reads == STRTOLL and not word)
        unlisted = number and (row is None or row.values is None)
        meant = () if unlisted else values
        if reader.choices:
            text = f"is none of {', '.join(reader.choices)}"
        return _Complaint(text, f"{reader.package}: {reader.source}", meant, reader.stage)
    if row is None or row.values is None or row.accepts(value) or _lenient(name, value, row):
        return None
    text = f"is none of {', '.join(row.values)}"
    return _Complaint(text, ", ".join(row.read_by), row.values)


def _readers(ctx: Context, name: str) -> tuple[EnvReader, ...]:
    """The readers that the declared versions have; without a version, those of every version.

    vLLM declares a few names that belong to others (``VERBOSE``, ``MAX_JOBS``): left alone.
    """
    found = []
    for reader in env_readers(name):
        have = ctx.target.package(reader.package)
        there = reader.versions.is_open if have is None else have in reader.versions
        foreign = reader.package == "vllm" and not name.startswith("VLLM_")
        if there and not foreign and reader.reads not in PLAIN:
            found.append(reader)
    return tuple(found)


def _refused_by_recipe(ctx: Context) -> frozenset[str | None]:
    """Variables for whose value the constructor of the trained recipe raises."""
    recipe, te = recipe_of(ctx), ctx.target.package("transformer_engine")
    if recipe is None or te is None or not ctx.train_env:
        return frozenset()
    env = {name: value for name, (value, _) in ctx.train_env.items()}
    return frozenset(field.env for field in te_recipes()[recipe].refused(te, env))


_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}


def _lenient(name: str, value: str, row: EnvVar) -> bool:
    """Readers that accept more than the listed texts."""
    if name.endswith("_ERR_MODE"):  # upper-cased before it is compared
        return value.upper() in (row.values or ())
    rocm = name.startswith("VLLM_ROCM_") and row.values == ("0", "1")
    return rocm and value.lower() in {"true", "false"}


def _meant(value: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if values == ("0", "1"):
        low = value.lower()
        return ("1",) if low in _TRUE else ("0",) if low in _FALSE else values
    return tuple(text for text in values if text.lower() == value.lower()) or values


_NVFP4 = ("nvfp4", "nvfp4_qat", "custom")
_CONSUMERS = {
    FP32_SCALES: ("fp8_block", "custom"),
    FIELD_VARIABLES["training.fp8_current_scaling_power_2_scales"]: ("fp8_per_tensor", "custom"),
    FIELD_VARIABLES["training.nvfp4_disable_rht"]: _NVFP4,
    FIELD_VARIABLES["training.nvfp4_disable_stochastic_rounding"]: _NVFP4,
    FIELD_VARIABLES["training.nvfp4_disable_2d_quantization"]: _NVFP4,
    FIELD_VARIABLES["training.nvfp4_row_scaled_activation"]: _NVFP4,
    FIELD_VARIABLES["training.nvfp4_4over6"]: _NVFP4,
}
"""Variables that only some trained formats read."""


@rule(
    "PP623",
    "variable-before-its-version",
    "error",
    stage="run",
    source=(f"{_TE_RECIPES}:261-566",),
)
def before_its_version(ctx: Context) -> Iterator[Finding]:
    """A setting is an environment variable that the declared version does not read yet.

    Why:
        Transformer Engine grew its NVTE_ switches over time: current-scaling powers of two and
        NVFP4 in 2.8, backward_override in 2.15, row-scaled activations in 2.16, 4over6 in 2.17.
        An older version ignores the variable, and the run trains without the setting. A value
        that equals the default changes nothing and is left alone.

    Bad:
        software: {transformer_engine: 2.10.0}
        training: {bf16: true, fp4_format: e2m1, nvfp4_4over6: weights}

    Good:
        software: {transformer_engine: 2.17.0}
        training: {bf16: true, fp4_format: e2m1, nvfp4_4over6: weights}
    """
    if not ctx.target.versions:
        return
    simulated = fake_qat(ctx) == "nvfp4_qat"
    for name, (value, field) in ctx.train_env.items():
        row = env_var(name)
        if row is None or not row.versions or value == row.default:
            continue
        if simulated and "NVFP4_4OVER6" in name:
            continue  # the fake quantizer reads these itself
        if name in _CONSUMERS and train_format(ctx) not in _CONSUMERS[name]:
            continue  # no version would read it: PP624
        if any(_reads(ctx, row, package) for package in row.read_by):
            continue
        package = next(iter(row.versions))
        yield ctx.found(
            f"{package} {ctx.target.package(package)} does not read {name} "
            f"({row.versions[package]})",
            field,
            f"software.{package}",
            fix=(set_to((field, None)),),
        )


def _reads(ctx: Context, row: EnvVar, package: str) -> bool:
    """True unless ``package`` is known not to read the variable in the declared target."""
    if package in row.versions:
        return row.exists_in(package, ctx.target.package(package)) is not False
    if package in {"vime", "slime", "miles"}:
        return ctx.target.framework in {None, package}
    return True


@rule(
    "PP624",
    "variable-without-its-recipe",
    "warning",
    stage="run",
    source=(
        "THUDM/slime@624b824a:scripts/low_precision/run-qwen3-4b-fp8.sh",
        "radixark/miles@31f1ca96:docs/advanced/low-precision.md",
        f"{_TE_RECIPES}:429",
    ),
)
def without_its_recipe(ctx: Context) -> Iterator[Finding]:
    """A recipe's variable is set, but training does not use that recipe.

    Why:
        A public launcher called FP8 training sets NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1 and no
        FP8 flag at all: it trains in BF16. The variable alone switches nothing on. miles also
        reads it in its FP8 weight update and is left alone when the rollout is in FP8.

    Bad:
        training: {bf16: true}
        env: {all: {NVTE_FP8_BLOCK_SCALING_FP32_SCALES: "1"}}

    Good:
        hardware: {gpu: h100}
        training: {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise}
        env: {all: {NVTE_FP8_BLOCK_SCALING_FP32_SCALES: "1"}}
    """
    env = ctx.train_env
    by_module = ctx.is_set("training.te_precision_config_file")
    if not env or by_module or ctx.is_set("training.te_precision_config"):
        return
    trained: str | None = None
    for name, consumers in _CONSUMERS.items():
        found = env.get(name)
        if found is None or found[0] == "0" or found[0] == "none":
            continue
        trained = trained or train_format(ctx)
        if trained in consumers or _read_elsewhere(ctx, name, found[1]):
            continue
        yield ctx.found(
            f"{name} is set, but nothing in training reads it: training is in {trained}",
            found[1],
            Because(f"its readers: {', '.join(consumers)}"),
            fix=(set_to((found[1], None)),),
        )


def _read_elsewhere(ctx: Context, name: str, field: str) -> bool:
    if name == FP32_SCALES:
        return ctx.target.framework == "miles" and rollout_format(ctx.plan) == "fp8_block"
    return field.startswith("env.all.") and rollout_format(ctx.plan) == "nvfp4"


@rule(
    "PP627",
    "int4-group-not-a-number",
    "error",
    stage="run",
    source=("THUDM/slime@624b824a:docker/patch/latest/megatron.patch:276",),
)
def int4_group_number(ctx: Context) -> Found:
    """OPEN_TRAINING_INT4_GROUP_SIZE is not a positive whole number.

    Why:
        The trainer passes the text to int() in every forward pass of an expert layer; anything
        else raises ValueError there, after the whole start-up.

    Bad:
        env: {train_actor: {OPEN_TRAINING_INT4_FAKE_QAT_FLAG: "1",
                            OPEN_TRAINING_INT4_GROUP_SIZE: group_128}}
        training: {moe_grouped_gemm: true}

    Good:
        env: {train_actor: {OPEN_TRAINING_INT4_FAKE_QAT_FLAG: "1",
                            OPEN_TRAINING_INT4_GROUP_SIZE: "128"}}
        training: {moe_grouped_gemm: true}
    """
    found = ctx.train_env.get(INT4_GROUP)
    if found is None:
        return None
    value, field = found
    if value.isascii() and value.isdigit() and int(value) > 0:
        return None
    return ctx.found(
        f"{INT4_GROUP} = {value!r} is not a positive whole number",
        field,
        fix=(set_to((field, "128")), set_to((field, "32"))),
    )


RULES: tuple[Rule, ...] = (
    block_scales,
    value_refused,
    before_its_version,
    without_its_recipe,
    int4_group_number,
)
