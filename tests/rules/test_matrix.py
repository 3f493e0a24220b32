"""The matrix cannot disagree with lint: every cell is what the rules say of its plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from precision_plan.api import lint, matrix
from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.gpus import gpus
from precision_plan.facts.pairs import formats_of, pair_settings, train_rollout_pairs
from precision_plan.plan import PrecisionPlan
from precision_plan.plan.matrix import STATUSES, Cell, Matrix
from precision_plan.rules.base import Context
from precision_plan.rules.engine import check
from precision_plan.rules.formats import rollout_format, train_format
from precision_plan.rules.matrix import UNSUPPORTED
from precision_plan.rules.registry import rules

GPUS = ("a100", "l40s", "h100", "b200", "gb300", "rtx-pro-6000", "mi300x", "mi355x")


@pytest.fixture(scope="module")
def every() -> Matrix:
    return matrix(tuple(gpus()), frameworks=RL_FRAMEWORKS)


@pytest.fixture(scope="module")
def few() -> Matrix:
    return matrix(GPUS, frameworks=RL_FRAMEWORKS)


def test_it_has_every_cell(every: Matrix) -> None:
    wanted = {
        (framework, train, rollout, gpu)
        for framework in RL_FRAMEWORKS
        for train in formats_of("train")
        for rollout in formats_of("rollout")
        for gpu in gpus()
    }
    found = [(cell.framework, *cell.pair, cell.gpu) for cell in every.cells]
    assert len(found) == len(wanted) and set(found) == wanted


def test_every_cell_is_what_lint_says_of_its_plan(every: Matrix) -> None:
    for cell in every.cells:
        found = check(PrecisionPlan.model_validate(cell.plan)).diagnostics
        loud = {(each.id, each.severity) for each in found if each.severity != "advice"}
        assert {(each.id, each.severity) for each in cell.reasons} == loud, cell
        refused = any(severity == "error" for _, severity in loud)
        assert (cell.status == "refused") == refused, cell
        warned = any(id in UNSUPPORTED for id, _ in loud)
        assert (cell.status == "unsupported") <= (warned and not refused), cell
        assert not (warned and not refused) or cell.status == "unsupported", cell


def test_a_plan_is_of_the_cell_s_formats(few: Matrix) -> None:
    for cell in few.cells:
        plan = PrecisionPlan.model_validate(cell.plan)
        assert (train_format(Context(plan)), rollout_format(plan)) == cell.pair


def test_lint_of_a_recipe_file_agrees(few: Matrix, tmp_path: Path) -> None:
    """The other way: as a recipe on disk, through the composer."""
    for number, cell in enumerate(few.cells):
        if number % 17:  # one of each residue: every format, framework and GPU is met
            continue
        path = tmp_path / f"cell{number}.yaml"
        path.write_text(yaml.safe_dump({**cell.plan, "recipe": {"title": "a cell"}}))
        found = lint([path]).diagnostics
        errors = {each.id for each in found if each.severity == "error"}
        assert errors == {each.id for each in cell.reasons if each.severity == "error"}, cell.plan


def test_maturity_is_documented(every: Matrix) -> None:
    rows = {
        (pair.train, pair.rollout, framework): pair
        for pair in train_rollout_pairs()
        for framework in pair.frameworks
    }
    names = {"stable": "supported", "beta": "beta", "experimental": "experimental"}
    for cell in every.cells:
        pair = rows.get((*cell.pair, cell.framework))
        told = (cell.source, cell.note, cell.needs)
        assert told == ((pair.source, pair.note, pair.needs) if pair else (None, None, ()))
        if cell.status in names.values():
            assert pair is not None and names[pair.maturity or ""] == cell.status
        if cell.status == "undocumented":
            assert pair is None


def test_every_documented_pair_is_a_row() -> None:
    trained, served = formats_of("train"), formats_of("rollout")
    for pair in train_rollout_pairs():
        assert pair.train in trained and pair.rollout in served


def _hardware(cell: Cell) -> list[bool]:
    errors = [each.id for each in cell.reasons if each.severity == "error"]
    return ["gpu" in rules()[id].scope.needs for id in errors]


def test_what_the_hardware_refuses_is_said_first(every: Matrix) -> None:
    seen = 0
    for cell in every.cells:
        order = _hardware(cell)
        assert order == sorted(order, reverse=True), cell
        seen += len(set(order)) == 2
    assert seen > 100


def found(few: Matrix, framework: str, gpu: str, train: str, rollout: str) -> tuple[str, str]:
    (cell,) = (
        cell
        for cell in few.cells
        if (cell.framework, cell.gpu, *cell.pair) == (framework, gpu, train, rollout)
    )
    return cell.status, cell.reasons[0].id if cell.reasons else ""


@pytest.mark.parametrize(
    ("framework", "gpu", "train", "rollout", "verdict"),
    [
        ("vime", "h100", "bf16", "fp8_block", ("supported", "")),
        ("vime", "h100", "fp8_block", "fp8_block", ("experimental", "")),
        ("miles", "b200", "fp8_block", "fp8_block", ("supported", "")),
        ("vime", "h100", "mxfp8", "mxfp8", ("refused", "PP204")),
        ("vime", "mi300x", "mxfp8", "mxfp8", ("refused", "PP207")),
        ("slime", "h100", "mxfp8", "mxfp8", ("refused", "PP204")),
        ("slime", "b200", "mxfp8", "mxfp8", ("refused", "PP531")),
        ("slime", "h100", "nvfp4_qat", "nvfp4", ("refused", "PP520")),
        ("slime", "b200", "nvfp4_qat", "nvfp4", ("refused", "PP517")),
        ("miles", "b200", "mxfp8", "fp8_block", ("unsupported", "PP502")),
        ("miles", "a100", "bf16", "mxfp8", ("unsupported", "PP509")),
        ("miles", "h100", "bf16", "nvfp4", ("unsupported", "PP509")),
        ("vime", "h100", "int4_qat", "fp8_block", ("undocumented", "PP518")),
        ("vime", "h100", "int4_qat", "int4", ("beta", "")),
    ],
)
def test_verdicts(
    few: Matrix, framework: str, gpu: str, train: str, rollout: str, verdict: tuple[str, str]
) -> None:
    assert found(few, framework, gpu, train, rollout) == verdict


@pytest.mark.parametrize(
    ("release", "verdict"), [("2.6.0", ("refused", "PP202")), ("2.20.2", ("experimental", ""))]
)
def test_versions_reach_the_rules(release: str, verdict: tuple[str, str]) -> None:
    """TE refuses block FP8 on Blackwell before 2.9."""
    built = matrix(("b200",), frameworks=("vime",), versions={"transformer_engine": release})
    assert found(built, "vime", "b200", "fp8_block", "fp8_block") == verdict


def test_what_is_no_package_is_refused() -> None:
    with pytest.raises(ValueError, match="'gpu' is no package"):
        matrix(("h100",), frameworks=("vime",), versions={"gpu": "b200"})
    with pytest.raises(KeyError):
        matrix(("h1000",), frameworks=("vime",))


def test_the_statuses_are_all_met(every: Matrix) -> None:
    assert {cell.status for cell in every.cells} == set(STATUSES)


def test_settings_name_their_sources() -> None:
    assert all(row.source for row in pair_settings())
    assert {row.side for row in pair_settings()} == {"train", "rollout"}
