"""Public reports as fixtures: what a folder says, what the linter answers, and whether it is right.

``tests/cases/ID/case.yaml`` retells one report: what the person had and the verdict that a linter
owes him before the launch. ``tests/cases/README.md`` names the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from precision_plan.facts.megatron import DEFAULT_VERSION
from precision_plan.importers.checkpoint_folder import interpreted, plan_of
from precision_plan.importers.findings import parse_findings
from precision_plan.importers.rows import megatron_row
from precision_plan.lower import lower
from precision_plan.plan import CheckpointFiles, Diagnostic, Origin, PrecisionPlan
from precision_plan.plan.resolved import resolved
from precision_plan.preflight.checkpoint import read_checkpoint
from precision_plan.rules.base import Context
from precision_plan.rules.engine import check
from tests.cases.folders import write
from tests.checkpoints import described

HERE = Path(__file__).parent
VERDICTS = ("reject", "warn", "auto-fix", "accept")
_ROW = frozenset({"versions", "gpu", "compute_capability", "platform", "world_size", "env", "argv"})
_INPUTS = frozenset({"plan", "files", "row", "profile"})
_EXPECT = frozenset({"verdict", "ids", "advice", "fix", "lowered", "resolved"})
_ABOUT = frozenset({"url", "family", "summary", "note"})
_LOUD = frozenset({"error", "warning"})


@dataclass(frozen=True, slots=True)
class Case:
    """One report. ``inputs`` are the keys of ``_INPUTS``; ``repaired`` is laid over them."""

    name: str
    family: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    repaired: Mapping[str, Any] | None = None
    not_expressible: str | None = None
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the linter says of some inputs; ``plan`` is what it read."""

    plan: PrecisionPlan
    diagnostics: tuple[Diagnostic, ...]

    def of(self, *severities: str) -> set[str]:
        return {found.id for found in self.diagnostics if found.severity in severities}


def cases(folder: Path = HERE) -> list[Case]:
    """Every case below ``folder``, by name."""
    return [read(path) for path in sorted(folder.glob("*/case.yaml"))]


def read(path: Path) -> Case:
    data = yaml.load(
        path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    about = _ABOUT | {"expect", "repaired", "not_expressible", "pending"}
    assert data.keys() <= about | _INPUTS, (path, data.keys() - about - _INPUTS)
    assert {"url", "family", "summary"} <= data.keys(), path
    case = Case(
        name=path.parent.name,
        family=data["family"],
        inputs={name: data[name] for name in _INPUTS & data.keys()},
        expect=data.get("expect", {}),
        repaired=data.get("repaired"),
        not_expressible=data.get("not_expressible"),
        pending=data.get("pending"),
    )
    _check_form(case)
    return case


def _check_form(case: Case) -> None:
    """A case says what it expects, and what would be right, or why the plan cannot say it."""
    if case.not_expressible is not None:
        assert len(case.not_expressible.split()) >= 5 and not case.inputs and not case.expect
        return
    assert case.inputs and case.expect.keys() <= _EXPECT, case.name
    assert case.expect["verdict"] in VERDICTS, case.name
    if case.expect["verdict"] == "accept":
        assert not case.expect.get("ids") and case.repaired is None, case.name
    else:
        assert case.expect.get("ids") or case.expect.get("lowered"), case.name
        assert not case.expect.get("ids") or case.repaired or _edits(case.expect), case.name


def faults(case: Case) -> list[str]:
    """What the linter gets wrong about a case; empty if its verdict is the right one."""
    answer = answer_to(case.inputs)
    found = _verdict_faults(case, answer)
    fixed = _fixed(case, answer)
    found += _fix_faults(case, answer, fixed)
    found += _lowered_faults(case.expect.get("lowered"), (fixed or answer).plan)
    found += _resolved_faults(case.expect.get("resolved"), answer.plan)
    if case.repaired is not None:
        twin = answer_to(merged(case.inputs, case.repaired))
        found += [f"repaired: {text}" for text in _loud(twin)]
    return found


def answer_to(inputs: Mapping[str, Any]) -> Answer:
    """What the linter says of a plan, of a checkpoint folder, or of Megatron's own arguments."""
    found: tuple[Diagnostic, ...] = ()
    files = None
    if "row" in inputs:
        row = inputs["row"]
        assert row.keys() <= _ROW, row.keys()
        plan, parsed = megatron_row({"framework": "megatron-lm", **row})
        found = parse_findings(parsed, plan.software.megatron_core or DEFAULT_VERSION)
    elif "files" in inputs:
        files = _read(inputs["files"])
        plan = _over(plan_of(files), inputs.get("plan", {}))
    else:
        plan = _recipe(PrecisionPlan.model_validate(inputs["plan"]))
    report = check(plan, inputs.get("profile", "ci"), checkpoint=files)
    return Answer(plan, (*found, *report.diagnostics))


def _read(description: Mapping[str, Any]) -> CheckpointFiles:
    """The folder, written down and read as a user's would be; a configuration alone is not."""
    if "tensors" not in description:
        return described(description)
    with TemporaryDirectory() as place:
        folder = Path(place, "checkpoint")
        write(description, folder)
        return interpreted(read_checkpoint(folder, "checkpoint"))


def _over(plan: PrecisionPlan, settings: Mapping[str, Any]) -> PrecisionPlan:
    """What a recipe says, over what the folder says of itself."""
    return _recipe(PrecisionPlan.model_validate(merged(plan.settings(), settings)))


def _recipe(plan: PrecisionPlan) -> PrecisionPlan:
    """A plan that stands in a file, so that its launch is this project's to complete."""
    origins = {name: Origin("case.yaml", layer="recipe") for name, _ in plan.set_fields()}
    return plan.model_copy(update={"origins": origins})


def merged(inputs: Any, changes: Any) -> Any:
    """``changes`` over ``inputs``: mappings key by key, ``null`` removes, the rest replaces."""
    if not (isinstance(inputs, Mapping) and isinstance(changes, Mapping)):
        return changes
    result = dict(inputs)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result[name], value) if name in result else value
    return result


def _loud(answer: Answer) -> list[str]:
    return [
        f"{found.severity} {found.id} {found.message}"
        for found in answer.diagnostics
        if found.severity in _LOUD
    ]


def _verdict_faults(case: Case, answer: Answer) -> list[str]:
    """Every expected id, at the verdict's severity, and no other error or warning."""
    verdict, expected = case.expect["verdict"], set(case.expect.get("ids", ()))
    found = [f"silent: {id}" for id in sorted(expected - answer.of(*_LOUD))]
    found += [text for text in _loud(answer) if text.split()[1] not in expected]
    found += [
        f"no advice {id}" for id in case.expect.get("advice", ()) if id not in answer.of("advice")
    ]
    errors = answer.of("error")
    if verdict == "reject" and not errors:
        found.append("is not refused")
    if verdict == "warn" and errors:
        found.append(f"is refused: {', '.join(sorted(errors))}")
    return found


def _edits(expect: Mapping[str, Any]) -> Mapping[str, Any]:
    fix = expect.get("fix")
    return fix if isinstance(fix, Mapping) else {}


def _fixed(case: Case, answer: Answer) -> Answer | None:
    """What the linter says once the expected edits are made; ``None`` if none are expected."""
    fix = _edits(case.expect)
    if not fix:
        return None
    settings = answer.plan.settings()
    for name, value in fix.items():
        *path, last = name.split(".")
        change: Any = {last: value}
        for key in reversed(path):
            change = {key: change}
        settings = merged(settings, change)
    inputs = {name: each for name, each in case.inputs.items() if name != "row"}
    return answer_to({**inputs, "plan": settings})


def _fix_faults(case: Case, answer: Answer, fixed: Answer | None) -> list[str]:
    """The expected way out is offered; where it is an edit of fields, it works."""
    ids, fix = set(case.expect.get("ids", ())), case.expect.get("fix")
    offered = [each for found in answer.diagnostics if found.id in ids for each in found.fix]
    if fix is None:
        need = bool(ids) and case.expect["verdict"] == "auto-fix"
        return ["an auto-fix without a fix"] if need else []
    if isinstance(fix, str):
        said = " / ".join(each.text for each in offered)
        return [] if fix in said else [f"fix does not say {fix!r} but {said!r}"]
    if not any(dict(each.edits) == fix for each in offered):
        return [f"no fix is {fix}: {[dict(each.edits) for each in offered]}"]
    return [f"after the fix: {text}" for text in _loud(fixed)] if fixed is not None else []


def _lowered_faults(expected: Mapping[str, Any] | None, plan: PrecisionPlan) -> list[str]:
    """Expected parts of a lowering, by target; ``roles`` says what a process finally sees."""
    if expected is None:
        return []
    lowering = lower(plan)
    found: list[str] = []
    for target, wanted in expected.items():
        if target == "roles":
            for role, variables in wanted.items():
                found += _missing(f"{role}: ", variables, lowering.ray.roles.get(role, {}))
            continue
        part = getattr(lowering, target)
        for name, value in wanted.items():
            if name in {"argv", "absent"}:
                found += _argv_faults(target, part.argv, value, present=name == "argv")
            else:
                found += _missing(f"{target}.{name}: ", value, getattr(part, name))
    return found


def _argv_faults(
    target: str, argv: Iterable[str], wanted: Iterable[str], *, present: bool
) -> list[str]:
    line = f" {' '.join(argv)} "
    return [
        f"{target}: {text} {'is missing' if present else 'is there'}"
        for text in wanted
        if (f" {text} " in line) is not present
    ]


def _missing(what: str, wanted: Any, have: Any) -> list[str]:
    if not isinstance(wanted, Mapping):
        return [] if wanted == have else [f"{what}{have!r}, not {wanted!r}"]
    found = []
    for name, value in wanted.items():
        got = have.get(name)
        if isinstance(value, Mapping) and isinstance(got, Mapping):
            found += _missing(f"{what}{name}: ", value, got)
        elif got != value:
            found.append(f"{what}{name} is {got!r}, not {value!r}")
    return found


def _resolved_faults(expected: Mapping[str, Any] | None, plan: PrecisionPlan) -> list[str]:
    """What Megatron's arguments become."""
    if expected is None:
        return []
    values = {name: str(value) for name, value in resolved(Context(plan).effective).items()}
    return _missing("", {name: str(value) for name, value in expected.items()}, values)
