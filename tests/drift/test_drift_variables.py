"""Drift of environment variables and of recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drift import trees
from tests.drift.checking import TE, VERSION, add, edit, engine, megatron, summary

MEGATRON_VERSIONS = ("0.12.1", "0.14.0", "0.16.1", "0.18.2", "0.19.0", "HEAD")


def test_variables_of_megatron(tmp_path: Path) -> None:
    files = add(
        trees.megatron(VERSION),
        trees.READER,
        "os.getenv('NVTE_NEW', '0')\nos.environ['MEGATRON_FP6_DTYPE']\n"
        "os.getenv('SLURM_JOB_ID')\nos.environ['UCX_FP8'] = '1'\n",
    )
    report = megatron(tmp_path, files)
    assert [summary(change)[:3] for change in report.changes] == [
        ("appeared", "variable", "MEGATRON_FP6_DTYPE"),
        ("appeared", "variable", "NVTE_NEW"),
    ]
    assert report.changes[1].sources == "read 1x, default 0"
    (gap,) = [gap for gap in report.gaps if "do not cover" in gap.what]
    assert gap.names == ("SLURM_JOB_ID", "UCX_FP8")


def test_a_variable_whose_reader_is_not_in_the_tree_is_a_gap(tmp_path: Path) -> None:
    files = edit(trees.megatron(VERSION), trees.READER, r"^.*MEGATRON_LOGGING_LEVEL.*\n", "")
    (change,) = megatron(tmp_path, files).changes
    assert summary(change)[:3] == ("vanished", "variable", "MEGATRON_LOGGING_LEVEL")
    wheel = {path: text for path, text in files.items() if path.startswith("megatron/core")}
    report = megatron(tmp_path, wheel)
    assert not [change for change in report.changes if change.subject == "variable"]
    (gap,) = [gap for gap in report.gaps if "readers are not among" in gap.what]
    assert "MEGATRON_LOGGING_LEVEL" in gap.names


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (
            r"^os.getenv\('NVTE_FP8_BLOCK_SCALING_FP32_SCALES'.*\n",
            "",
            None,  # the recipe still reads it
        ),
        (
            r"^os.getenv\('NVTE_FUSED_ATTN',.*\n",
            "",
            ("vanished", "variable", "NVTE_FUSED_ATTN", None),
        ),
        (
            r"^os.getenv\('NVTE_FUSED_ATTN', '1'\)",
            "os.getenv('NVTE_FUSED_ATTN', '0')",
            ("changed", "variable", "NVTE_FUSED_ATTN", "default"),
        ),
        (
            r"^os.getenv\('NVTE_FUSED_ATTN', '1'\)",
            "os.getenv('NVTE_FUSED_ATTN', known())",
            None,
        ),
        (
            r"^os.getenv\('NVTE_FUSED_ATTN', '1'\)",
            "NAME = 'NVTE_FUSED_ATTN'",
            None,  # still named, in a way that is not understood
        ),
        (
            r"^import os$",
            "import os\nos.getenv('NVTE_NEW')",
            ("appeared", "variable", "NVTE_NEW", None),
        ),
    ],
)
def test_variables_of_transformer_engine(
    tmp_path: Path, pattern: str, text: str, expected: tuple[object, ...] | None
) -> None:
    files = edit(trees.transformer_engine(TE), trees.TE_READER, pattern, text)
    changes = engine(tmp_path, files).changes
    assert [summary(change) for change in changes] == ([] if expected is None else [expected])


def test_variables_of_native_code(tmp_path: Path) -> None:
    """A row that cites C++ is looked for only where there is C++."""
    files = edit(trees.transformer_engine(TE), trees.TE_READER, r"^.*NVTE_DISABLE_NVRTC.*\n", "")
    report = engine(tmp_path, files)
    assert report.changes == ()
    assert any("NVTE_DISABLE_NVRTC" in gap.names for gap in report.gaps)
    native = "transformer_engine/common/util/rtc.cpp"
    (change,) = engine(tmp_path, {**files, native: "int main() {}\n"}).changes
    assert summary(change)[:3] == ("vanished", "variable", "NVTE_DISABLE_NVRTC")
    text = 'bool off = getenv<bool>("NVTE_DISABLE_NVRTC", false);\n'
    assert engine(tmp_path, {**files, native: text}).changes == ()


def test_a_variable_of_another_version(tmp_path: Path) -> None:
    files = add(
        trees.transformer_engine("2.8.0"), trees.TE_READER, "os.getenv('NVTE_NVFP4_4OVER6')"
    )
    (change,) = engine(tmp_path, files).changes
    assert change.note == "in the facts for transformer-engine 2.17 and later, not for 2.8.0"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (
            r"^    amax_history_len: .*\n",
            "",
            ("vanished", "recipe field", "DelayedScaling.amax_history_len", None),
        ),
        (
            r"^    amax_history_len: (.*) = 1024",
            r"    amax_history_len: \1 = 16",
            ("changed", "recipe field", "DelayedScaling.amax_history_len", "default"),
        ),
        (
            r"^    margin: object = 0\n(?=    fp8_format: Format = Format.HYBRID)",
            "    margin: object = 0\n    depth: int = 1\n",
            ("appeared", "recipe field", "DelayedScaling.depth", None),
        ),
        (
            r"'NVTE_NVFP4_4OVER6', ",
            "'NVTE_FOUR_OVER_SIX', ",
            ("changed", "recipe field", "NVFP4BlockScaling.nvfp4_4over6", "env"),
        ),
        (
            r"self.nvfp4_4over6_err_mode in \('MAE', 'MSE',\)",
            "self.nvfp4_4over6_err_mode in ('MAE', 'MSE', 'MAX')",
            ("changed", "recipe field", "NVFP4BlockScaling.nvfp4_4over6_err_mode", "allowed"),
        ),
        (
            r"assert self.fp4_format in .*",
            "pass",
            ("changed", "recipe field", "NVFP4BlockScaling.fp4_format", "allowed"),
        ),
        (
            r"assert self.fp4_format in .*",
            "assert self.fp4_format != Format.E2M1",
            ("changed", "recipe field", "NVFP4BlockScaling.fp4_format", "allowed"),
        ),
        (
            r"^    qfactory: object",
            "    qfactory: object = None",
            ("changed", "recipe field", "CustomRecipe.qfactory", "required"),
        ),
        (
            r"^class CustomRecipe\(Recipe\)",
            "class CustomRecipe",
            ("vanished", "recipe", "CustomRecipe", None),
        ),
        (
            r"\Z",
            "@dataclass\nclass FP6Scaling(Recipe):\n    depth: int = 1\n",
            ("appeared", "recipe", "FP6Scaling", None),
        ),
    ],
)
def test_recipes(tmp_path: Path, pattern: str, text: str, expected: tuple[object, ...]) -> None:
    files = edit(trees.transformer_engine(TE), trees.RECIPES, pattern, text)
    changes = [change for change in engine(tmp_path, files).changes if change.subject != "variable"]
    assert [summary(change) for change in changes] == [expected]
    assert all(change.precise for change in changes)
