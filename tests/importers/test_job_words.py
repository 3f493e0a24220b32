"""Every word of a launch is accounted for, and a plan that was lowered comes back the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from precision_plan import api
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.importers.declarations import Declared
from precision_plan.importers.framework_argv import options_of
from precision_plan.importers.job_plan import job_of
from precision_plan.importers.jobs import Command, ImportedJob
from precision_plan.importers.texts import Piece, Source, Text, literal
from precision_plan.lower import lower
from precision_plan.plan.given_target import TARGET_KEYS

RECIPES = sorted((Path(__file__).parents[2] / "conf" / "recipes").glob("*.yaml"))
OPTIONS = options_of(("slime",), None, None)
FLAGS = sorted(flag for flag, option in OPTIONS.items() if option.field)

PLAIN = st.sampled_from(["8", "e4m3", "true", "-1", "x y", "", "--", "[1]*4", "$"])
WORDS = st.one_of(
    st.sampled_from(FLAGS),
    st.sampled_from(FLAGS).map(lambda flag: f"{flag}=1"),
    st.sampled_from(["--fp8-recipee", "--nobody-knows", "--sglang-x", "--train-env-vars", "-u"]),
    PLAIN,
)


def text(word: str, *, known: bool = True, split: bool = False) -> Text:
    source = Source("run.sh", word.encode())
    if known:
        return literal(word, source)
    before = word[: len(word) // 2]
    pieces = [Piece(before, source)] if before else []
    return Text((*pieces, Piece("${X}", source, len(before), known=False, split=split)))


def job(words: list[Text], env: Mapping[str, str], declared: dict[str, str]) -> ImportedJob:
    command = Command(tuple(words), {name: text(value) for name, value in env.items()})
    found = job_of(command, Declared(declared))
    assert found is not None
    return found


@given(
    st.lists(st.tuples(WORDS, st.booleans(), st.booleans()), max_size=12),
    st.sampled_from(["megatron-lm", *RL_FRAMEWORKS]),
)
@example(
    [("--accumulate-x", False, False), ("--save-interval", True, False), ("-1", True, False)],
    "megatron-lm",
)
@settings(max_examples=300, deadline=None)
def test_every_word_is_accounted_for(drawn: list[tuple[str, bool, bool]], framework: str) -> None:
    start = ["python3", "train.py", "--micro-batch-size", "1"]
    words = [text(word) for word in start]
    words += [text(word, known=known, split=split) for word, known, split in drawn]
    found = job(words, {}, {"framework": framework})
    assert len(found.uses) == len(words)
    assert found.uses[:4] == ("launch", "launch", "read", "read")
    left = [word.shown for word, use in zip(words, found.uses, strict=True) if use == "left"]
    assert [each.text for each in found.leftovers if each.kind != "source"][: len(left)] == left
    passed = [word.shown for word, use in zip(words, found.uses, strict=True) if use == "passed"]
    extra = found.plan.launch.extra_args or {}
    for word in passed:
        if word.startswith("--n") and "=" not in word and "$" not in word:
            assert word.lstrip("-") in extra
    for name in found.unknown:
        assert name in found.plan.origins


@given(st.sampled_from(FLAGS), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_value_that_is_not_known_sets_nothing_else(flag: str, split: bool) -> None:
    option = OPTIONS[flag]
    if option.kind != "value":
        return
    start = [text(word) for word in ("python3", "train.py", "--micro-batch-size", "1")]
    found = job(
        [*start, text(flag), text("", known=False, split=split)], {}, {"framework": "slime"}
    )
    assert not found.diagnostics and not found.leftovers
    assert option.field is not None
    assert option.field in found.unknown or "$" in str(found.plan.get(option.field))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_lowered_recipe_comes_back(recipe: Path) -> None:
    """Import after lowering gives the same flags and variables when it is lowered again."""
    compiled = api.compile(recipe)
    lowered, plan = compiled.lowering, compiled.plan
    assert lowered is not None
    framework = plan.software.framework
    argv, env = list(lowered.megatron.argv), dict(lowered.ray.runtime_env["env_vars"])
    if framework in RL_FRAMEWORKS:
        submit = ["ray", "job", "submit", "--runtime-env-json", json.dumps({"env_vars": env})]
        words, exports = [*submit, "--", "python3", "train.py", *argv], {}
    else:
        entry = "pretrain_difflm.py" if framework == "megadlm" else "pretrain_gpt.py"
        words, exports = ["torchrun", entry, *argv], env
    found = job([text(word) for word in words], exports, _declared(plan))
    assert not found.diagnostics and not found.leftovers
    assert "left" not in found.uses
    again = lower(found.plan)
    assert _options(again.megatron.argv) >= _options(lowered.megatron.argv)
    assert again.ray.runtime_env["env_vars"] == env


def _declared(plan: Any) -> dict[str, str]:
    return {
        key: str(plan.get(field))
        for key, field in TARGET_KEYS.items()
        if plan.get(field) is not None and not field.startswith("rollout.")
    }


def _options(argv: tuple[str, ...]) -> set[tuple[str, ...]]:
    found: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return set(map(tuple, found))
