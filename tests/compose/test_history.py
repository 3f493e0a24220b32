"""What earlier layers said of a key, and who chose a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from precision_plan.compose import Composer, Composition
from precision_plan.plan import Origin
from precision_plan.plan.history import Word

Compose = Callable[..., Composition]
Write = Callable[[str, "str | bytes"], Path]
ROOT = Path(__file__).parents[2]


def words(found: Sequence[Word]) -> list[tuple[object, str, str]]:
    return [(word.value, str(word.origin), word.origin.layer) for word in found]


def test_layers_that_were_not_heard(compose: Compose, write: Write) -> None:
    write(
        "recipes/top.yaml",
        "# @package _global_\ndefaults:\n  - base\n  - _self_\ntraining:\n  fp8_recipe: mxfp8\n",
    )
    composition = compose("top", "training.fp8_recipe=tensorwise")
    assert composition.data["training"]["fp8_recipe"] == "tensorwise"
    assert words(composition.history["training.fp8_recipe"]) == [
        ("blockwise", "conf/training/fp8.yaml:3:1", "training=fp8"),
        ("mxfp8", "conf/recipes/top.yaml:6:3", "recipe"),
    ]
    assert "training.bf16" not in composition.history


def test_a_removed_key(compose: Compose, write: Write) -> None:
    composition = compose("base", "~training.seq_length")
    assert words(composition.history["training.seq_length"]) == [
        (4096, "conf/recipes/base.yaml:16:3", "recipe"),
        (None, "~training.seq_length", "override"),
    ]
    assert [word.removed for word in composition.history["training.seq_length"]] == [False, True]
    write("recipes/env.yaml", "env: {all: {A: b}}\n")
    assert words(compose("env", "~env.all").history["env.all.A"]) == [
        ("b", "conf/recipes/env.yaml:1:13", "recipe"),
        (None, "~env.all", "override"),
    ]


def test_items_of_a_list(compose: Compose, write: Write) -> None:
    write("recipes/list.yaml", "rollout:\n  ignore: [a, b]\n")
    composition = compose("list", "rollout.ignore.1=c", "~rollout.ignore.0")
    assert composition.data["rollout"]["ignore"] == ["c"]
    assert words(composition.history["rollout.ignore.1"])[0][:2] == (
        "b",
        "conf/recipes/list.yaml:2:3",
    )
    assert [word.removed for word in composition.history["rollout.ignore.0"]] == [False, True]


def test_who_chose_a_group(compose: Compose) -> None:
    composition = compose("base", "hardware=b200")
    assert words(composition.chosen["hardware"]) == [
        (None, "conf/config.yaml:3:5", ""),
        ("h100", "conf/recipes/base.yaml:4:5", ""),
        ("b200", "hardware=b200", "override"),
    ]
    assert words(composition.chosen["training"])[-1][:2] == ("fp8", "conf/recipes/base.yaml:5:5")
    last = compose("base", "~hardware").chosen["hardware"][-1]
    assert last == Word(None, Origin("~hardware", layer="override"), removed=True)


def test_what_was_written_before_it_was_resolved(compose: Compose) -> None:
    composition = compose("base", "training.seq_length=${model.num_layers}")
    assert composition.data["training"]["seq_length"] == 4
    assert composition.written == {"training.seq_length": "${model.num_layers}"}
    assert compose("base").written == {}


KEYS = ("training.micro_batch_size", "training.seed", "optimizer.lr")
STEPS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9)), max_size=8)


@given(STEPS)
def test_nothing_that_an_override_said_is_lost(steps: list[tuple[str, int | None]]) -> None:
    """Every word is in the history, in order, but the last one, which is the value."""
    said: dict[str, list[object]] = {key: [] for key in KEYS}
    texts = []
    now: dict[str, int | None] = {}
    for key, value in steps:
        if value is not None:
            texts.append(f"++{key}={value}")
            said[key].append(value)
            now[key] = value
        elif now.get(key) is not None:
            texts.append(f"~{key}")
            said[key].append(None)
            now[key] = None
    composition = Composer(ROOT / "conf").compose(None, texts)
    for key in KEYS:
        section, _, name = key.partition(".")
        last = composition.data.get(section, {}).get(name)
        assert last == now.get(key)
        values = [word.value for word in composition.history.get(key, ())]
        assert values == (said[key] if last is None else said[key][:-1])
        if last is not None:
            assert composition.origins[key].file == f"++{key}={last}"
