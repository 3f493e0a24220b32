"""Real releases: each agrees with the facts at its version, and two differ as they should."""

from __future__ import annotations

import pytest

from precision_plan.drift.changes import Report
from precision_plan.drift.check import check_megatron, check_transformer_engine
from precision_plan.facts.transformer_engine import te_recipes
from tests._packages import TE_RELEASES, installed_version, te_wheel


def names(report: Report, kind: str, subject: str) -> set[str]:
    return {
        change.name for change in report.changes if (change.kind, change.subject) == (kind, subject)
    }


@pytest.fixture
def megatron_core() -> None:
    """Only megatron-core 0.16.1, the version of ``constraints.txt``."""
    version = installed_version("megatron-core")
    if version != "0.16.1":
        pytest.skip(f"written for megatron-core 0.16.1, found {version}")


@pytest.mark.usefixtures("megatron_core")
def test_installed_megatron_core() -> None:
    report = check_megatron("installed")
    assert (report.found, report.facts) == ("0.16.1", "0.16.1")
    assert report.changes == ()
    compared = dict(report.compared)
    # 115 flags are generated from TransformerConfig; the wheel has no parser for the others.
    assert compared["flags"] == 115
    assert compared["config fields"] > 600
    assert compared["variables"] >= 10
    assert any("no megatron/training/arguments.py" in gap.what for gap in report.gaps)


@pytest.mark.usefixtures("megatron_core")
def test_what_0_18_has_that_the_installed_megatron_core_has_not() -> None:
    report = check_megatron("installed", "0.18.0")
    changed = {
        (change.name, change.aspect): (change.facts, change.sources)
        for change in report.changes
        if change.kind == "changed" and change.precise
    }
    impl = ["none", "local", "transformer_engine"]
    assert changed == {
        ("--fp4-param-gather", "dest"): ("fp4_param_gather", "fp4_param"),
        ("--cuda-graph-impl", "choices"): ([*impl, "full_iteration"], impl),
    }
    assert names(report, "vanished", "config field") >= {
        "TransformerConfig.fp8_output_proj",
        "OptimizerConfig.muon_scalar_optimizer",
        "DistributedDataParallelConfig.megatron_fsdp_main_params_dtype",
    }
    assert names(report, "vanished", "variable") == {"FP4_RECIPE", "MAMBA_DETERMINISTIC"}


@pytest.mark.usefixtures("megatron_core")
def test_what_the_installed_megatron_core_has_that_0_15_had_not() -> None:
    report = check_megatron("installed", "0.15.3")
    assert names(report, "appeared", "config field") >= {
        "TransformerConfig.fp8_quantizer_factory",
        "TransformerConfig.batch_invariant_mode",
        "OptimizerConfig.muon_fp32_matmul_prec",
    }
    assert names(report, "vanished", "config field") == set()


@pytest.mark.parametrize("release", TE_RELEASES)
def test_release_of_transformer_engine(release: str) -> None:
    report = check_transformer_engine(str(te_wheel(release)))
    assert (report.found, report.facts) == (release, release)
    assert report.changes == ()
    fields = [recipe.fields_at(release) for recipe in te_recipes().values()]
    assert dict(report.compared)["recipe fields"] == sum(map(len, fields))
    assert dict(report.compared)["variables"] > 40


def test_what_came_after_2_8() -> None:
    report = check_transformer_engine(str(te_wheel("2.20.2")), "2.8.0")
    assert names(report, "appeared", "recipe") == {"CustomRecipe"}
    assert names(report, "appeared", "recipe field") >= {
        "NVFP4BlockScaling.nvfp4_4over6",
        "NVFP4BlockScaling.row_scaled_activation",
        "MXFP8BlockScaling.enable_2d_quantization",
        "DelayedScaling.backward_override",
    }
    changed = {
        (change.name, change.aspect): (change.facts, change.sources)
        for change in report.changes
        if change.kind == "changed"
    }
    assert changed == {
        ("Float8BlockScaling.fp8_format", "allowed"): (None, "all but E5M2"),
    }
    assert names(report, "appeared", "variable") >= {
        "NVTE_NVFP4_4OVER6",
        "NVTE_BACKWARD_OVERRIDE",
        "NVTE_FLASH_ATTN_V4",
    }
    assert names(report, "vanished", "variable") == {
        "QAT_PARAMS",
        "NVTE_FUSED_ATTN_FORCE_WORKSPACE_OPT",
    }
    (field,) = [
        change for change in report.changes if change.name == "NVFP4BlockScaling.nvfp4_4over6"
    ]
    assert field.sources == {
        "type": "str",
        "default": "none",
        "env": "NVTE_NVFP4_4OVER6",
        "allowed": ["activations", "all", "none", "weights"],
    }


def test_what_2_8_does_not_have_yet() -> None:
    report = check_transformer_engine(str(te_wheel("2.8.0")), "2.14.1")
    assert names(report, "vanished", "recipe") == {"CustomRecipe"}
    assert names(report, "appeared", "recipe field") == set()
    assert "NVTE_CPU_OFFLOAD_V1" in names(report, "vanished", "variable")
