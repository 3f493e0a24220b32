"""Per-module precision in the lowering: the file, the argument, the table of roles, the layers."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from precision_plan.lower import lower
from precision_plan.lower.te_precision import file_text
from precision_plan.plan import Lowering, PrecisionPlan
from precision_plan.plan.compiled import Compiled
from precision_plan.plan.te_precision import TePrecisionConfig
from precision_plan.render import render_plan
from tests.lower.plans import any_plan, plan

NVFP4 = {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4", "moe_grouped_gemm": True}
MODEL = {"num_layers": 4, "num_experts": 8}
CONFIG: dict[str, Any] = {
    "configs": {
        "nvfp4": {"training_recipe": {"fp4_quantization_recipe": "nvfp4"}},
        "bf16": {"training_recipe": {}, "evaluation_recipe": {"fp8_format": "hybrid"}},
    },
    "matchers": {
        "experts": {"config": "nvfp4", "pattern": "*.mlp.experts.linear_fc?", "enabled": True},
        "later": {"config": "bf16", "pattern": "[!a]*", "enabled": False},
        "rest": {"config": "bf16", "pattern": "*", "enabled": True},
    },
}
TEXT = """\
configs:
  nvfp4:
    transformer_engine_config_type: TEQuantizationParams
    training_recipe: {fp4_quantization_recipe: nvfp4}
  bf16:
    transformer_engine_config_type: TEQuantizationParams
    training_recipe: {}
    evaluation_recipe: {fp8_format: hybrid}
matchers:
  experts:
    config: nvfp4
    pattern: "*.mlp.experts.linear_fc?"
    type: glob
    enabled: true
  later:
    config: bf16
    pattern: "[!a]*"
    type: glob
    enabled: false
  rest:
    config: bf16
    pattern: "*"
    type: glob
    enabled: true
"""


def lowered(**sections: Any) -> Lowering:
    training = {**NVFP4, "te_precision_config": CONFIG, **sections.pop("training", {})}
    return lower(plan(**{"model": MODEL, "training": training, **sections}))


def roles(found: Lowering) -> dict[str, str]:
    return {role.name: role.dtype for role in found.roles}


# The file ---------------------------------------------------------------------------------------
def test_the_text_of_the_file() -> None:
    assert file_text(TePrecisionConfig.model_validate(CONFIG)) == TEXT
    assert file_text(TePrecisionConfig()) == "configs: {}\nmatchers: {}\n"


@pytest.mark.parametrize("word", ["true", "no", "1e3", "a: b", "ä", "\x7f", "", "x\ny", '"', "~"])
def test_any_text_stays_a_text(word: str) -> None:
    yaml = pytest.importorskip("yaml")
    matcher = {"config": word, "pattern": word, "enabled": True}
    text = file_text(TePrecisionConfig.model_validate({"matchers": {word: matcher}}))
    assert text.isascii() and "\x7f" not in text
    assert yaml.safe_load(text)["matchers"] == {word: {**matcher, "type": "glob"}}


def test_the_argument_names_the_file_and_says_who_asked() -> None:
    megatron = lowered().megatron
    assert megatron.files == {"te_precision.yaml": TEXT}
    at = megatron.argv.index("--te-precision-config-file")
    assert megatron.argv[at + 1] == "te_precision.yaml"
    (item,) = [item for item in megatron.items if item.value == "te_precision.yaml"]
    assert item.reason.field == "training.te_precision_config"


def test_a_file_of_its_own_goes_first() -> None:
    megatron = lowered(training={"te_precision_config_file": "own.yaml"}).megatron
    assert megatron.files == {}
    assert megatron.argv.count("--te-precision-config-file") == 1
    assert "own.yaml" in megatron.argv


@pytest.mark.parametrize(
    "software", [{"megatron_core": "0.15.3"}, {"framework": "megadlm"}, {"framework": "vllm"}]
)
def test_what_cannot_read_a_file_gets_none(software: dict[str, str]) -> None:
    megatron = lowered(software=software).megatron
    assert megatron.files == {}
    assert "--te-precision-config-file" not in megatron.argv


# Roles and layers -------------------------------------------------------------------------------
def test_roles_name_the_formats_of_the_modules() -> None:
    found = roles(lowered())
    assert found["GEMM inputs forward"] == found["GEMM inputs backward"] == "bf16, nvfp4"
    assert found["first/last layers"] == "bf16, nvfp4"
    edges = {"first_last_layers_bf16": True}
    assert roles(lowered(training=edges))["first/last layers"] == "bf16"
    one = {"configs": CONFIG["configs"], "matchers": {"rest": CONFIG["matchers"]["rest"]}}
    assert roles(lowered(training={"te_precision_config": one}))["GEMM inputs forward"] == "bf16"


def test_roles_are_unknown_where_a_file_decides() -> None:
    found = roles(lowered(training={"te_precision_config_file": "own.yaml"}))
    assert found["GEMM inputs forward"] == found["first/last layers"] == "unknown"
    assert roles(lowered(model={}))["GEMM inputs forward"] == "unknown"


@settings(max_examples=150, deadline=None)
@given(any_plan())
def test_first_and_last_layers_agree_with_the_map(plan: PrecisionPlan) -> None:
    found = lower(plan)
    args = plan.training
    if not found.layers or not args.first_last_layers_bf16 or not args.fp8_format:
        return
    if args.transformer_impl == "local" or (args.num_layers_at_start_in_bf16 or 1) < 1:
        return
    first = {
        row.resolved.format for row in found.layers if row.block == "decoder" and not row.first
    }
    shown = roles(found)["first/last layers"]
    assert shown == "unknown" or shown.partition(" ")[0].rstrip(",") in first


# Renderings -------------------------------------------------------------------------------------
def compiled(**training: Any) -> Compiled:
    found = plan(model=MODEL, training={**NVFP4, "te_precision_config": CONFIG, **training})
    return Compiled("name", found, (), lower(found), found.fingerprint(), 0, {}, 0.0)


def test_the_printed_plan_shows_layers_only_where_they_differ() -> None:
    text = render_plan(compiled(first_last_layers_bf16=True), "text", width=100)
    block = text.partition("Layers (from 0)\n")[2].partition("\n\n")[0]
    assert [line.split() for line in block.splitlines()] == [
        ["layers", "modules", "format", "what", "decides"],
        ["0", "all", "bf16", "training.first_last_layers_bf16"],
        ["1", "to", "2", "self_attention.linear_qkv,", "bf16", "matcher", "rest"],
        ["self_attention.linear_proj"],
        ["1", "to", "2", "mlp.experts.linear_fc1,", "nvfp4", "matcher", "experts"],
        ["mlp.experts.linear_fc2"],
        ["3", "all", "bf16", "training.first_last_layers_bf16"],
    ]
    off = {**CONFIG, "matchers": {}}
    assert "Layers (from 0)" not in render_plan(compiled(te_precision_config=off), "text")


def test_json_holds_the_file_and_the_layers() -> None:
    data = json.loads(render_plan(compiled(), "json"))
    assert data["lowered"]["megatron"]["files"] == {"te_precision.yaml": TEXT}
    assert data["layers"][1] == {
        "block": "decoder",
        "first": 0,
        "last": 3,
        "modules": ["mlp.experts.linear_fc1", "mlp.experts.linear_fc2"],
        "format": "nvfp4",
        "evaluation": "nvfp4",
        "reason": "matcher experts",
        "field": "training.te_precision_config.matchers.experts",
    }


def test_the_script_writes_the_file_and_names_it_by_its_whole_path(tmp_path: Path) -> None:
    script = tmp_path / "plan.sh"
    show = '\nprintf "%s\\n" "${MEGATRON_ARGS[@]}"\n'
    script.write_text(render_plan(compiled(), "shell") + show)
    folder = tmp_path / "a folder"
    folder.mkdir()
    ran = subprocess.run(
        ["bash", str(script)], cwd=folder, capture_output=True, text=True, check=True
    )
    assert (folder / "te_precision.yaml").read_text() == TEXT
    words = ran.stdout.splitlines()
    named = words[words.index("--te-precision-config-file") + 1]
    assert named == str(folder / "te_precision.yaml")
    assert shlex.quote(named) != named  # the space came through
