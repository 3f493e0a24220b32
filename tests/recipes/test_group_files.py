"""Every file of every group: a comment with its source, known keys, valid values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from precision_plan.facts._load import table
from precision_plan.facts.gpus import gpus
from precision_plan.plan import SECTIONS, PrecisionPlan

CONF = Path(__file__).parents[2] / "conf"
FILES = tuple(sorted(CONF.glob("*/*.yaml")))
GROUP_FILES = tuple(path for path in FILES if path.parent.name != "recipes")
CHOICES = {group: {p.stem for p in (CONF / group).glob("*.yaml")} for group in SECTIONS}


def _id(path: Path) -> str:
    return f"{path.parent.name}={path.stem}"


def _read(path: Path) -> dict[str, Any]:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


def test_folders_are_sections():
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert folders == {*SECTIONS, "recipes"}
    assert all(CHOICES.values())


@pytest.mark.parametrize("path", GROUP_FILES, ids=_id)
def test_comment_names_the_source(path):
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line)
    assert len(comment) >= 2
    assert comment[-1].startswith("# Source: ")
    assert len(comment[-1]) > len("# Source: ")


@pytest.mark.parametrize("path", GROUP_FILES, ids=_id)
def test_keys_and_values_fit_the_section(path):
    section = PrecisionPlan.model_fields[path.parent.name].annotation
    data = _read(path)
    assert data
    assert set(data) <= set(section.model_fields)
    constant = {key: value for key, value in data.items() if "${" not in str(value)}
    loaded = section.model_validate(constant)
    written = {key for key, value in constant.items() if value is not None}
    assert {name for name, _ in loaded.set_items()} == written


def test_every_gpu_has_a_choice_and_every_choice_a_gpu():
    assert CHOICES["hardware"] == set(gpus())
    for choice in sorted(CHOICES["hardware"]):
        assert _read(CONF / "hardware" / f"{choice}.yaml")["gpu"] == choice


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "mi300x", "mi355x"])
def test_boards_of_eight(name):
    assert _read(CONF / "hardware" / f"{name}.yaml")["gpus_per_node"] == 8


@pytest.mark.parametrize("name", ["gb200", "gb300"])
def test_trays_of_four(name):
    assert _read(CONF / "hardware" / f"{name}.yaml")["gpus_per_node"] == 4


def test_a_model_is_named_after_its_file():
    for choice in sorted(CHOICES["model"]):
        assert _read(CONF / "model" / f"{choice}.yaml")["name"] == choice
    assert {row["model"] for row in table("int4_group_sizes")} <= CHOICES["model"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("qwen3-4b", {"num_layers": 36, "hidden_size": 2560, "rotary_base": 1e6}),
        ("qwen3-30b-a3b", {"num_layers": 48, "num_experts": 128, "moe_ffn_hidden_size": 768}),
        ("qwen3-235b-a22b", {"num_layers": 94, "num_experts": 128, "moe_ffn_hidden_size": 1536}),
        ("moonlight-16b-a3b", {"num_layers": 27, "num_experts": 64, "norm_epsilon": 1e-5}),
        ("kimi-k2-thinking", {"num_layers": 61, "num_experts": 384, "q_lora_rank": 1536}),
        ("qwen35-27b", {"num_layers": 64, "kv_channels": 256, "linear_num_value_heads": 48}),
        ("dlm-1.7b", {"num_layers": 28, "hidden_size": 2048, "vocab_size": 50289}),
    ],
)
def test_architecture(model, expected):
    data = _read(CONF / "model" / f"{model}.yaml")
    assert {key: data[key] for key in expected} == expected


@pytest.mark.parametrize("model", ["moonlight-16b-a3b", "kimi-k2-thinking"])
def test_first_layer_is_dense(model):
    data = _read(CONF / "model" / f"{model}.yaml")
    assert data["moe_layer_freq"] == [0] + [1] * (data["num_layers"] - 1)


def test_hybrid_layers_add_up():
    data = _read(CONF / "model" / "qwen35-27b.yaml")
    layers = data["linear_attention_layers"] + data["full_attention_layers"]
    assert layers == data["num_layers"]


def test_training_choice_sets_its_format():
    formats = {
        choice: (data.get("fp8_format"), data.get("fp8_recipe"), data.get("fp4_format"))
        for choice in sorted(CHOICES["training"])
        for data in [_read(CONF / "training" / f"{choice}.yaml")]
    }
    assert formats == {
        "bf16": (None, None, None),
        "fp16": (None, None, None),
        "fp32": (None, None, None),
        "fp8-blockwise": ("e4m3", "blockwise", None),
        "fp8-delayed": ("hybrid", "delayed", None),
        "fp8-tensorwise": ("hybrid", "tensorwise", None),
        "mxfp8": ("e4m3", "mxfp8", None),
        "nvfp4": (None, None, "e2m1"),
        "nvfp4-experts": (None, None, "e2m1"),
    }
