"""A safe fix changes nothing that is trained or served, and its rule's page says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest
import yaml

from precision_plan.facts.megatron import flags_by_field
from precision_plan.lower import lower
from precision_plan.plan import Diagnostic, PrecisionPlan, Target, effective
from precision_plan.rules.engine import Report, check
from precision_plan.rules.registry import rules
from tests.checkpoints import described
from tests.rules.test_cases import LOADER, cases_of, sections


class Finding(NamedTuple):
    """A finding of a rule about one of its own cases."""

    plan: dict[str, Any]
    files: dict[str, Any] | None
    found: Diagnostic


def examples(rule_id: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    for case in cases_of(rule_id):
        yield case.get("plan", {}), case.get("files")
    for text in (sections(rules()[rule_id]).get("Bad"),):
        plan = yaml.load(text, LOADER) if text else {}
        yield {key: value for key, value in plan.items() if key != "files"}, plan.get("files")


def judged(plan: Mapping[str, Any], files: dict[str, Any] | None) -> Report:
    checkpoint = described(files) if files is not None else None
    return check(PrecisionPlan.model_validate(plan), checkpoint=checkpoint)


@cache
def findings(rule_id: str) -> tuple[Finding, ...]:
    return tuple(
        Finding(plan, files, found)
        for plan, files in examples(rule_id)
        for found in judged(plan, files).diagnostics
        if found.id == rule_id
    )


def edited(plan: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: dict(values) for name, values in plan.items()}
    for field, value in edits.items():
        *path, name = field.split(".")
        place: dict[str, Any] = result
        for part in path:
            place[part] = dict(place.get(part) or {})
            place = place[part]
        place.pop(name, None)
        if value is not None:
            place[name] = value
    return result


@pytest.mark.parametrize("rule_id", rules())
def test_the_page_tells_whether_lint_fixes_it(rule_id: str) -> None:
    safe = [each for each in findings(rule_id) if each.found.safe_fix is not None]
    assert bool(safe) == rules()[rule_id].fixable


@pytest.mark.parametrize("rule_id", [id for id, rule in rules().items() if rule.fixable])
def test_a_safe_fix_ends_the_finding_and_changes_nothing_else(rule_id: str) -> None:
    for plan, files, found in findings(rule_id):
        fix = found.safe_fix
        if fix is None:
            continue
        after = edited(plan, fix.edits)
        before_ids = {(each.id, each.field) for each in judged(plan, files).diagnostics}
        left = {(each.id, each.field) for each in judged(after, files).diagnostics}
        assert (found.id, found.field) not in left
        assert left <= before_ids
        assert changed_arguments(plan, after) <= arguments_of(found, fix.edits)
        assert changed_words(plan, after) <= words_of(plan, after, fix.edits)


def changed_arguments(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Dests of Megatron that end up with another value once every override has been made."""
    one, other = (
        effective(plan, Target.of(plan)).args.__dict__
        for plan in map(PrecisionPlan.model_validate, (before, after))
    )
    return {dest for dest in one.keys() | other.keys() if one.get(dest) != other.get(dest)}


def arguments_of(found: Diagnostic, edits: Mapping[str, Any]) -> set[str]:
    """Dests of settings that nobody reads: those that a fix removes, and not what it sets."""
    if found.resolved and any(value is not None for value in edits.values()):
        return set()  # it writes down what happens anyway
    flags = flags_by_field()
    return {flags[field].dest for field, value in edits.items() if value is None and field in flags}


def lowered(plan: Mapping[str, Any]) -> set[str]:
    result = lower(PrecisionPlan.model_validate(plan))
    argv = (*result.megatron.argv, *result.vllm.argv, *result.vllm.passthrough)
    words = {word for word in argv if word.startswith("--")}
    for env in (result.megatron.env, result.transformer_engine.env, result.vllm.env):
        words |= {f"{name}={value}" for name, value in env.items()}
    return words


def changed_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return lowered(before) ^ lowered(after)


def words_of(
    before: Mapping[str, Any], after: Mapping[str, Any], edits: Mapping[str, Any]
) -> set[str]:
    """Flags and variables that the edited fields are spelt as."""
    flags = flags_by_field()
    words = {text for field in edits if field in flags for text in flags[field].flags}
    names = {field.rpartition(".")[2] for field in edits}
    words |= {word for word in changed_words(before, after) if word.partition("=")[0] in names}
    return words | {f"--{name.replace('_', '-')}" for name in names}
