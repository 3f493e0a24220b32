"""Lock files: written the same way each time, read back, and compared with today's plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan import Origin
from precision_plan.plan.comparison import compare
from precision_plan.plan.lock import KIND, BrokenLock, is_lock, lock_text, read_lock
from precision_plan.plan.lock_findings import lock_findings
from precision_plan.plan.suppression import Suppression
from tests.plan.snapshots import CHANGES, compiled, snapshot


def shuffled(node: Any, turn: Any) -> Any:
    if isinstance(node, dict):
        return {key: shuffled(node[key], turn) for key in turn.draw(st.permutations(list(node)))}
    return node


@given(CHANGES, st.data())
def test_the_order_of_keys_does_not_matter(change: Any, turn: Any) -> None:
    text = lock_text(snapshot(change))
    assert lock_text(snapshot(shuffled(change, turn))) == text
    assert text.endswith("}\n") and json.loads(text)["kind"] == KIND


@given(CHANGES)
def test_what_was_written_is_read_back_and_is_the_same_plan(change: Any) -> None:
    today = snapshot(change)
    lock = read_lock(lock_text(today, ["hardware=h200"]), "x.lock")
    assert lock.overrides == ("hardware=h200",)
    assert lock.snapshot.fingerprint == today.fingerprint
    found = compare(lock.snapshot, today)
    assert (found.plan, found.effects, found.about) == ((), (), ())
    assert list(lock_findings(lock, found)) == []
    assert lock_text(lock.snapshot, lock.overrides) == lock_text(today, ["hardware=h200"])


@given(CHANGES, CHANGES)
def test_a_lock_differs_as_the_plans_differ(one: Any, other: Any) -> None:
    """A lock hides secrets and nothing else."""
    a, b = snapshot(one), snapshot(other)
    locked = compare(read_lock(lock_text(a), "x").snapshot, b)
    plain = compare(a.hidden(), b.hidden())
    assert [each.path for each in locked.plan] == [each.path for each in plain.plan]
    assert [each.path for each in locked.effects] == [each.path for each in plain.effects]


def test_secrets_are_known_by_name_only() -> None:
    def holder(token: str) -> dict[str, dict[str, Any]]:
        extra = {"wandb-key": token, "url": f"https://me:{token}@host"}
        env = {"all": {"HF_TOKEN": token}, "train_actor": {"WANDB_API_KEY": token}}
        return {"env": env, "launch": {"extra_args": extra}}

    first, second = snapshot(holder("s3cr3ts3cr3t")), snapshot(holder("oth3roth3r"))
    text = lock_text(first)
    assert "s3cr3t" not in text and '"HF_TOKEN": "***"' in text
    assert lock_text(second) == text  # a renewed token is no other plan
    found = compare(read_lock(text, "x").snapshot, second)
    assert not found.differs


def test_suppressions_are_kept_with_their_reasons() -> None:
    where = Origin("r.yaml", 3)
    text = lock_text(snapshot(), (), (Suppression(("PP501", "PP204"), "known", 3, where),))
    assert json.loads(text)["suppressed"] == [["PP204", "known"], ["PP501", "known"]]


def test_versions_that_stand_in_are_named() -> None:
    versions = json.loads(lock_text(snapshot({"software": {"megatron_core": None}})))["versions"]
    assert versions["megatron_core"] == {"declared": None, "assumed": "0.16.1"}
    assert versions["transformer_engine"] == {"declared": "2.10.0", "assumed": "2.10.0"}


# Broken ---------------------------------------------------------------------------------------
def changed(**keys: Any) -> str:
    data = json.loads(lock_text(snapshot()))
    for key, value in keys.items():
        if value is None:
            del data[key]
        else:
            data[key] = value
    return json.dumps(data)


BROKEN = {
    "nothing": ("", "PP034", "is not JSON"),
    "cut": (lock_text(snapshot())[:400], "PP034", "is not JSON"),
    "another JSON": ('{"a": 1}', "PP034", "is no lock"),
    "a list": ("[1]", "PP034", "is no lock"),
    "deep": ("[" * 100_000, "PP034", "cannot be read"),
    "a key twice": ('{"kind": 1, "kind": 2}', "PP034", "stands twice"),
    "not a number": ('{"kind": NaN}', "PP034", "NaN"),
    "no version": (changed(schema_version=None), "PP034", "without a schema version"),
    "version true": (changed(schema_version=True), "PP034", "without a schema version"),
    "older": (changed(schema_version=0), "PP035", "an older one than 1"),
    "newer": (changed(schema_version=2), "PP035", "a newer one than 1"),
    "no plan": (changed(plan=None), "PP034", "'plan' is missing"),
    "plan is a list": (changed(plan=[1]), "PP034", "plan is no object"),
    "section is a text": (changed(plan={"training": "x"}), "PP034", "plan.training is no object"),
    "flags are a text": (
        changed(lowered={"megatron": {"flags": "--x"}}),
        "PP034",
        "lowered.megatron.flags is no object",
    ),
    "environment": (
        changed(lowered={"environment": {"driver": {"A": 1}}}),
        "PP034",
        "lowered.environment.driver holds something else",
    ),
    "role": (changed(lowered={"environment": {"driver": "x"}}), "PP034", "no object"),
    "layers": (changed(lowered={"layers": [1]}), "PP034", "lowered.layers"),
    "findings": (changed(accepted=[1]), "PP034", "cannot be read"),
    "overrides": (changed(overrides="x"), "PP034", "overrides is no list of texts"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    text, id, message = BROKEN[name]
    with pytest.raises(BrokenLock) as caught:
        read_lock(text, "x.lock")
    found = caught.value.diagnostic
    assert (found.id, found.origin.file) == (id, "x.lock")
    assert message in found.message and len(found.message) < 200
    assert found.fix


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["megatron", "vllm", "argv", "layers", "a"]),
                                      inner, max_size=3)),
       st.sampled_from(["plan", "lowered", "versions", "accepted", "about", "overrides",
                        "fingerprint", "recipe", "written_by"]))  # fmt: skip
def test_any_data_in_place_of_a_part(part: Any, key: str) -> None:
    """It is refused, or compared; nothing else happens."""
    data = json.loads(lock_text(snapshot()))
    data[key] = part
    try:
        lock = read_lock(json.dumps(data), "x.lock")
    except BrokenLock as error:
        assert error.diagnostic.id == "PP034"
    else:
        found = compare(lock.snapshot, snapshot())
        assert len(list(lock_findings(lock, found))) >= len(found.plan)


def test_what_is_taken_for_a_lock() -> None:
    text = lock_text(snapshot())
    assert is_lock(text) and is_lock(f"\n {text}")
    assert not is_lock('{"a": 1}') and not is_lock(f"training: {{}} # {KIND}")


# Findings -------------------------------------------------------------------------------------
def findings(before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    lock = read_lock(lock_text(snapshot(before)), "x.lock")
    return list(lock_findings(lock, compare(lock.snapshot, snapshot(after))))


def test_each_field_is_a_finding_with_what_it_lowers_to() -> None:
    fp8 = {"training": {"fp8_format": "e4m3", "fp8_recipe": "blockwise"}}
    other = {"training": {"fp8_format": "e4m3", "fp8_recipe": "tensorwise"}}
    found = findings(fp8, other)
    assert [each.id for each in found] == ["PP030", "PP031"]
    assert found[0].message == "training.fp8_recipe: blockwise in the lock, tensorwise today"
    texts = [premise.text for premise in found[0].because]
    assert texts[0] == "locked in x.lock"
    assert any("--fp8-recipe: blockwise in the lock" in text for text in texts)
    assert "differ along with the plan" in found[1].message


def test_the_same_plan_that_lowers_to_something_else() -> None:
    data = json.loads(lock_text(snapshot()))
    data["lowered"]["megatron"]["flags"]["--gone"] = True
    data["written_by"] = "precision-plan 0.0.1"
    lock = read_lock(json.dumps(data), "x.lock")
    (found,) = lock_findings(lock, compare(lock.snapshot, snapshot()))
    assert found.id == "PP031"
    assert found.message == "the plan is the same, but 1 lowered setting differ"
    texts = [premise.text for premise in found.because]
    assert texts[0] == "Megatron --gone: true in the lock, not set today"
    assert "precision-plan 0.0.1" in texts[1]


def test_a_broken_snapshot_is_not_compared() -> None:
    from precision_plan.plan.snapshot import Snapshot, snapshot_of

    made = compiled()
    assert not snapshot_of(made).broken
    with pytest.raises(BrokenLock) as caught:
        read_lock("", "x.lock")
    found = compare(Snapshot("x", "lock", diagnostics=(caught.value.diagnostic,)), snapshot())
    assert found.broken and found.plan == found.effects == ()
