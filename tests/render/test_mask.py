"""Secrets stay secret in every format."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan import Diagnostic, Item, Origin, PrecisionPlan, Reason
from precision_plan.plan.compiled import Compiled
from precision_plan.plan.lowering import MegatronLowering, RayLowering
from precision_plan.plan.secrets import is_secret
from precision_plan.render import PLAN_FORMATS, render_plan
from precision_plan.render._mask import HIDDEN, Mask
from tests.render.samples import COMPILED, LOWERING, PLAN

SECRET_NAMES = ("HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY")


@pytest.mark.parametrize(
    "name", [*SECRET_NAMES, "--wandb-key", "api_key", "authToken", "--hf-token", "client_secret"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "VLLM_MAX_TOKENS",
        "SANDBOX_IMAGE_METADATA_KEY",
        "--input-key",
        "--label-key",
        "--max-tokens-per-gpu",
        "--eos-token",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "NVTE_FP8_DPA_BWD",
        "",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("env.all.HF_TOKEN=hf_x", "env.all.HF_TOKEN=***"),
        ("HF_TOKEN = 'a b' and more", "HF_TOKEN = '***' and more"),
        ('{"env": {"HF_TOKEN": "a\\"b", "X": "1"}}', '{"env": {"HF_TOKEN": "***", "X": "1"}}'),
        (r"{\"API_KEY\": \"ab\", \"X\": \"1\"}", r"{\"API_KEY\": \"***\", \"X\": \"1\"}"),
        ("git+https://me:pass@host/x?y=1", "git+https://***@host/x?y=1"),
        ("run --wandb-key abc --input-key prompt", "run --wandb-key *** --input-key prompt"),
        ("training.fp8_recipe = mxfp8", "training.fp8_recipe = mxfp8"),
        ("NVIDIA/Megatron-LM@core_v0.16.1:a.py:3", "NVIDIA/Megatron-LM@core_v0.16.1:a.py:3"),
    ],
)  # fmt: skip
def test_text(text: str, shown: str) -> None:
    assert Mask().text(text) == shown


def test_argv() -> None:
    argv = ("--wandb-key", "abc", "--bf16", "--wandb-key=xyz", "word", "--hf-token", "--fp16")
    assert Mask().argv(argv) == [
        "--wandb-key", HIDDEN, "--bf16", f"--wandb-key={HIDDEN}", "word", "--hf-token", "--fp16",
    ]  # fmt: skip


def test_data_keeps_what_is_no_secret() -> None:
    data = {"HF_TOKEN": "abc", "steps": [1, 2.5, None, True], "nested": {"api_key": "z", "n": "a"}}
    assert Mask().data(data) == {
        "HF_TOKEN": HIDDEN,
        "steps": [1, 2.5, None, True],
        "nested": {"api_key": HIDDEN, "n": "a"},
    }


def compiled_with(name: str, value: str) -> Compiled:
    """A compiled recipe that spreads one secret over every place that is printed."""
    plan = PrecisionPlan.model_validate(
        {
            "recipe": {"title": f"for {value}"},
            "env": {"all": {name: value}},
            "launch": {"extra_args": {"note": f"uses {value}"}},
        }
    )
    diagnostic = Diagnostic(
        id="PP601",
        slug="variable-and-field-disagree",
        severity="warning",
        message=f"the value {value} is odd",
        origin=Origin(f"env.all.{name}={value}", layer="override"),
    )
    environment = {"env_vars": {name: value, "COPY": f"x{value}y"}}
    lowering = replace(
        LOWERING,
        megatron=MegatronLowering(
            argv=("--train-env-vars", json.dumps({name: value}), "--bf16"),
            items=(Item("--note", value, Reason(f"env.all.{name} = {value}")),),
        ),
        ray=RayLowering(runtime_env=environment, roles={"driver": {name: value}}),
    )
    return replace(
        COMPILED, plan=plan, diagnostics=(diagnostic,), lowering=lowering, name="secretive"
    )


@given(
    name=st.sampled_from(SECRET_NAMES),
    value=st.text(
        st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), min_size=8, max_size=40
    ).filter(lambda text: text.strip() == text and text.isprintable() and len(set(text)) > 4),
)
def test_no_format_shows_a_secret(name: str, value: str) -> None:
    compiled = compiled_with(name, f"S3{value}")
    for format in PLAN_FORMATS:
        text = render_plan(compiled, format, width=400)
        assert f"S3{value}" not in text
        assert json.dumps(f"S3{value}")[1:-1] not in text


@given(st.text(max_size=60))
def test_masking_twice_is_masking_once(text: str) -> None:
    mask = Mask(["abcdef", "0123456789"])
    once = mask.text(text)
    assert mask.text(once) == once


def test_the_fingerprint_tells_nothing_of_a_secret() -> None:
    shown = json.loads(render_plan(COMPILED, "json"))
    assert shown["plan"]["env"]["all"]["HF_TOKEN"] == HIDDEN
    assert shown["fingerprint"] == PLAN.fingerprint()
    settings = PLAN.settings()
    settings["env"]["all"]["HF_TOKEN"] = "renewed-since"
    assert PrecisionPlan.model_validate(settings).fingerprint() == PLAN.fingerprint()
    settings["env"]["all"]["OTHER"] = "1"
    assert PrecisionPlan.model_validate(settings).fingerprint() != PLAN.fingerprint()
