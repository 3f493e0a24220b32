"""What differs between two plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from precision_plan.plan.comparison import Change, Comparison, compare
from precision_plan.plan.snapshot import UNKNOWN_VALUE, flags_of, snapshot_of
from precision_plan.plan.unknown import with_unknown
from tests.plan.snapshots import CHANGES, compiled, snapshot

BLOCKWISE = {"training": {"fp8_format": "e4m3", "fp8_recipe": "blockwise"}}


def rows(changes: tuple[Change, ...]) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {
        (each.target, each.name): (
            None if each.before is None else each.before.value,
            None if each.after is None else each.after.value,
        )
        for each in changes
    }


def test_a_field_and_what_it_lowers_to() -> None:
    found = compare(snapshot(), snapshot(BLOCKWISE))
    assert rows(found.plan) == {
        ("plan", "training.fp8_format"): (None, "e4m3"),
        ("plan", "training.fp8_recipe"): (None, "blockwise"),
    }
    effects = rows(found.effects)
    assert effects[("Megatron", "--fp8-recipe")] == (None, "blockwise")
    assert effects[("Transformer Engine", "recipe")] == (None, "Float8BlockScaling")
    assert effects[("Tensors", "GEMM inputs forward")] == ("bf16", "fp8_block e4m3")
    assert effects[("Layers", "decoder 0 to 3, all modules")] == ("bf16", "fp8_block")
    assert found.differs
    (fp8,) = (each for each in found.effects if each.name == "--fp8-recipe")
    assert fp8.after is not None and fp8.after.reason is not None
    assert fp8.after.reason.field == "training.fp8_recipe"


def test_a_variable_by_the_processes_that_see_it() -> None:
    one = snapshot({"env": {"all": {"X": "1"}}})
    other = snapshot({"env": {"all": {"X": "1"}, "train_actor": {"X": "2", "Y": "3"}}})
    changes = [each for each in compare(one, other).effects if each.target == "Environment"]
    assert [(each.name, each.roles) for each in changes] == [
        ("X", ("train_actor",)),
        ("Y", ("train_actor",)),
    ]
    assert [each.before and each.before.value for each in changes] == ["1", None]
    # the blob that carries them on the command line says nothing new
    assert "--train-env-vars" not in {each.name for each in compare(one, other).effects}


def test_words_about_a_recipe_have_no_effect() -> None:
    found = compare(snapshot({"recipe": {"title": "a"}}), snapshot({"recipe": {"title": "b"}}))
    assert not found.differs
    assert rows(found.about) == {("about", "title"): ("a", "b")}


def test_true_is_not_one_and_null_is_not_absent() -> None:
    one = {"launch": {"extra_args": {"seed": 1}}}
    other = {"launch": {"extra_args": {"seed": True}}}
    assert rows(compare(snapshot(one), snapshot(other)).plan) == {
        ("plan", "launch.extra_args.seed"): (1, True)
    }


def test_what_is_not_known_is_no_value() -> None:
    one = compiled(BLOCKWISE)
    other = replace(one, plan=with_unknown(one.plan, ["training.fp8_recipe"]))
    found = compare(snapshot_of(one), snapshot_of(other))
    assert rows(found.plan)[("plan", "training.fp8_recipe")] == ("blockwise", UNKNOWN_VALUE)


def test_a_masked_side_hides_the_same_on_the_other() -> None:
    one = snapshot({"env": {"all": {"HF_TOKEN": "abcdefgh", "X": "1"}}})
    other = snapshot({"env": {"all": {"HF_TOKEN": "ijklmnop", "X": "2"}}})
    both = compare(one, other)
    assert {each.name for each in both.plan} == {"env.all.HF_TOKEN", "env.all.X"}
    hidden = compare(one.hidden(), other)
    assert {each.name for each in hidden.plan} == {"env.all.X"}
    assert "ijklmnop" not in repr(hidden) and "abcdefgh" not in repr(hidden)


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        ([], {}),
        (["--a", "1", "--b"], {"--a": "1", "--b": True}),
        (["--a", "1", "-2", "--a=3"], {"--a": [["1", "-2"], "3"]}),
        (["--a="], {"--a": ""}),
        (["stray", "--a"], {"--a": True}),
    ],
)
def test_flags_of_a_command_line(argv: list[str], flags: dict[str, Any]) -> None:
    assert flags_of(argv) == flags


def mirrored(found: Comparison) -> Comparison:
    def turned(changes: tuple[Change, ...]) -> tuple[Change, ...]:
        return tuple(replace(each, before=each.after, after=each.before) for each in changes)

    return Comparison(
        found.b,
        found.a,
        turned(found.plan),
        turned(found.effects),
        turned(found.about),
        found.only_b,
        found.only_a,
    )


@given(CHANGES, CHANGES)
def test_a_comparison_is_its_own_mirror_image(one: Any, other: Any) -> None:
    a, b = snapshot(one), snapshot(other)
    assert compare(b, a) == mirrored(compare(a, b))


@given(CHANGES)
def test_nothing_differs_from_itself(change: Any) -> None:
    one, other = snapshot(change), snapshot(change)
    found = compare(one, other)
    assert not found.differs and found.about == found.only_a == found.only_b == ()
    assert not compare(one.hidden(), other).differs


@given(CHANGES, CHANGES)
def test_plans_that_do_not_differ_lower_to_the_same(one: Any, other: Any) -> None:
    found = compare(snapshot(one), snapshot(other))
    if not found.plan:
        assert found.effects == ()
