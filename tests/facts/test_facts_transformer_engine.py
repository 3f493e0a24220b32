"""Transformer Engine: hardware checks, recipe fields and the versions that change them."""

import dataclasses
import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_plan.facts.env_vars import env_vars
from precision_plan.facts.formats import formats
from precision_plan.facts.gpus import gpus
from precision_plan.facts.transformer_engine import (
    TeField,
    block_scale_rows,
    fused_adam_options,
    nvfp4_sm12x,
    recipe_class,
    rocm_support,
    te_accepts,
    te_recipes,
    te_support,
)

HERE = Path(__file__).parent
TE = "2.20.2"


def decisions() -> list[dict[str, Any]]:
    """Own rows of the decision table: both sides of every boundary."""
    return json.loads((HERE / "te_hardware.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", decisions(), ids=lambda r: "{recipe}-{cc}-{te}".format(**r))
def test_hardware_checks(row: dict[str, Any]) -> None:
    accepted = te_accepts(row["recipe"], tuple(row["cc"]), row["cuda"], row["te"])
    assert accepted is row["accepted"]


def recorded() -> Iterator[Path]:
    """Verdicts recorded from the real code, where a folder beside the checkout holds some."""
    return HERE.parents[2].glob("*/*/te_hardware.jsonl")


def test_recorded_verdicts_are_reproduced() -> None:
    files = sorted(recorded())
    if not files:
        pytest.skip("no recorded verdicts beside the checkout")
    for path in files:
        wrong = [
            row
            for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
            if te_accepts(
                row["recipe"],
                tuple(row["compute_capability"]),
                row["cuda"],
                row["transformer_engine"],
            )
            is not row["accepted"]
        ]
        assert wrong == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("MXFP8BlockScaling", (9, 0)), False),
        (("MXFP8BlockScaling", (12, 0)), None),
        (("MXFP8BlockScaling", (12, 0), None, TE), False),
        (("MXFP8BlockScaling", (10, 0), None, TE), True),
        (("Float8BlockScaling", (9, 0), None, TE), None),
        (("NVFP4BlockScaling", None, None, TE), None),
        (("NVFP4BlockScaling", (8, 9)), False),
    ],
)
def test_what_is_unknown_stays_unknown(question: tuple[Any, ...], answer: bool | None) -> None:
    assert te_accepts(*question) is answer


def test_an_unknown_recipe_is_an_error() -> None:
    with pytest.raises(KeyError):
        te_accepts("NoSuchScaling", (9, 0))


def test_names_meet_the_other_tables() -> None:
    classes = te_recipes()
    assert {row.recipe for row in te_support()} == set(classes)
    assert {row.format for row in classes.values() if row.format} <= set(formats())
    gfx = {gpu.gfx for gpu in gpus().values() if gpu.gfx}
    assert {name for row in rocm_support().values() for name in row.gfx} <= gfx
    variables = {field.env for row in classes.values() for field in row.fields if field.env}
    assert variables <= set(env_vars())


@pytest.mark.parametrize(
    ("fp8_recipe", "fp4_recipe", "name"),
    [
        ("delayed", None, "DelayedScaling"),
        ("tensorwise", None, "Float8CurrentScaling"),
        ("blockwise", None, "Float8BlockScaling"),
        ("mxfp8", None, "MXFP8BlockScaling"),
        ("custom", None, "CustomRecipe"),
        ("delayed", "nvfp4", "NVFP4BlockScaling"),
        (None, "custom", "CustomRecipe"),
        (None, None, None),
    ],
)
def test_recipe_class(fp8_recipe: str | None, fp4_recipe: str | None, name: str | None) -> None:
    assert recipe_class(fp8_recipe, fp4_recipe) == name


def plain(value: Any) -> Any:
    """A recipe class's default in the spelling of the table."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def default_of(field: TeField) -> Any:
    return dict(field.default) if hasattr(field.default, "keys") else field.default


@pytest.mark.parametrize("name", sorted(te_recipes()))
def test_fields_of_the_installed_classes(name: str, te_recipe_module: Any) -> None:
    recipe = getattr(te_recipe_module, name)
    known = te_recipes()[name].fields_at(TE)
    assert set(recipe.__dataclass_fields__) == set(known)
    if name == "CustomRecipe":
        instance = recipe(qfactory=lambda role: None)
        known = {key: field for key, field in known.items() if not field.required}
    else:
        instance = recipe()
    assert {key: plain(getattr(instance, key)) for key in known} == {
        key: default_of(field) for key, field in known.items()
    }


@pytest.mark.parametrize(
    ("name", "field", "arrives", "before"),
    [
        ("Float8BlockScaling", "backward_override", "2.15.0", "2.14.1"),
        ("NVFP4BlockScaling", "nvfp4_4over6", "2.17.1", "2.16.1"),
        ("NVFP4BlockScaling", "row_scaled_activation", "2.16.1", "2.15.0"),
        ("MXFP8BlockScaling", "enable_2d_quantization", "2.19.0", "2.18.0"),
        ("Float8CurrentScaling", "use_power_2_scales", "2.8.0", "2.7.0"),
    ],
)
def test_a_field_arrives(name: str, field: str, arrives: str, before: str) -> None:
    recipe = te_recipes()[name]
    assert field in recipe.fields_at(arrives)
    assert field not in recipe.fields_at(before)


def test_nvfp4_on_12x_is_known_for_every_version_that_accepts_it() -> None:
    for te in ("2.8.0", "2.12.0", "2.15.0", "2.16.1", "2.18.0", "2.19.0", TE):
        assert te_accepts("NVFP4BlockScaling", (12, 0), "12.8", te)
        assert sum(te in row.versions for row in nvfp4_sm12x()) == 1
    by_version = {row.versions.since: row for row in nvfp4_sm12x()}
    assert by_version["2.8"].needs == ("disable_rht", "disable_stochastic_rounding")
    assert by_version["2.16"].default_recipe == "silent"
    assert by_version["2.19"].needs == ()


@pytest.mark.parametrize(
    ("compute_capability", "te", "allowed"),
    [((9, 0), TE, ("0", "1")), ((10, 0), TE, ("0",)), ((12, 0), "2.9.0", ("0",))],
)
def test_block_scales(
    compute_capability: tuple[int, int], te: str, allowed: tuple[str, ...]
) -> None:
    (row,) = (
        row for row in block_scale_rows() if row.covers(compute_capability) and te in row.versions
    )
    assert row.allowed == allowed


@pytest.mark.parametrize(("te", "bf16"), [("2.2.0", False), ("2.3.0", True), (TE, True)])
def test_bf16_moments(te: str, bf16: bool) -> None:
    for option in ("exp_avg_dtype", "exp_avg_sq_dtype"):
        (row,) = (r for r in fused_adam_options() if r.option == option and te in r.versions)
        assert ("bf16" in row.values) is bf16


def test_rocm_fork() -> None:
    rows = rocm_support()
    assert rows["Float8BlockScaling"].gfx == ()
    assert dict(rows["MXFP8BlockScaling"].env or {}) == {"NVTE_ROCM_ENABLE_MXFP8": ("1", "2")}
