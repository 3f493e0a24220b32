"""The composer against ``hydra.compose``: the same files and overrides, the same result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compose.hydra_reference import REFUSED, by_hydra, by_us

CONF = Path(__file__).parents[2] / "conf"
RECIPES = sorted(path.stem for path in (CONF / "recipes").glob("*.yaml"))

OVERRIDES = (
    (),
    ("training.fp16=true",),
    ("hardware=b200", "hardware.nodes=4"),
    ("~optimizer",),
    ("~qat",),
    ("recipe=qwen3-30b-mxfp8",),
    ("checkpoint.quantization_config.weight_block_size.1=64",),
    ("optimizer=adam", "training=bf16", "optimizer.lr=1e-5"),
    ("+training.seq_length=4096", "++training.bf16=false"),
    ("~recipe.title", "recipe.maturity=null"),
    ("model.moe_layer_freq=[1,0,1]", "env.all.NAME='a, \"b\" c'"),
    ("rollout.quantization_config={a: {b: [1, 2.5, x]}, c: null}",),
    ("launch.extra_args.prompt-data=/data/${model.name}.jsonl", "qat.int4_group_size=32"),
    ("launch.model_name=${model.name}", "checkpoint.quantization_config={bits: 4}"),
    ("env.all.A=1_000", "env.all.B=0x10", "env.all.C=1e3", "env.all.D=.5", "env.all.E="),
    ("software.cuda=12.10", "software.vllm=0.33.0", "checkpoint.load=a:b/c@d%e"),
    ("dry_run=true", "launcher=ray"),
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_composes_as_in_hydra(recipe: str) -> None:
    for overrides in ((), ("hardware=b200", "training.fp16=true", "env.all.X=1")):
        texts = (f"+recipe={recipe}", *overrides)
        assert by_us(CONF, texts) == by_hydra(CONF, texts) != REFUSED


@pytest.mark.parametrize("overrides", OVERRIDES, ids=lambda texts: " ".join(texts)[:60] or "none")
def test_overrides_act_as_in_hydra(overrides: tuple[str, ...]) -> None:
    texts = ("+recipe=qwen3-30b-fp8", *overrides)
    assert by_us(CONF, texts) == by_hydra(CONF, texts) != REFUSED


def test_without_a_recipe() -> None:
    assert by_us(CONF, ()) == by_hydra(CONF, ()) == {"dry_run": False, "launcher": None}


@pytest.mark.parametrize(
    "text",
    [
        "+recipe=nope",
        "hardware=nope",
        "+hardware=b200",
        "++hardware=b200",
        "hardware=null",
        "hardware=8",
        "~hardware=b200",
        "~optimizer.nope",
        "~optimizer.lr=7",
        "+optimizer.lr=7",
        "a b=1",
        "a=[1",
        "training.bf16=true,false",
        "nope/nope=1",
        "hardware@nope=h100",
        "checkpoint.quantization_config.weight_block_size.7=1",
        "checkpoint.quantization_config=[1]",
        "checkpoint.quantization_config.weight_block_size={a: 1}",
        "launch.model_name=${nope.nope}",
        "=1",
    ],
)
def test_both_refuse(text: str) -> None:
    texts = ["+recipe=qwen3-30b-fp8", text]
    assert by_hydra(CONF, texts) == REFUSED
    assert by_us(CONF, texts) == REFUSED


def test_a_recipe_is_added_not_changed() -> None:
    texts = ("recipe=qwen3-30b-fp8",)
    assert by_us(CONF, texts) == by_hydra(CONF, texts) == REFUSED
