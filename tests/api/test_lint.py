"""Any number of files in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api import lint
from precision_plan.plan import Origin
from precision_plan.plan.compiled import exit_code
from precision_plan.plan.given_target import check_target

CONF = Path(__file__).parents[2] / "conf"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_the_shipped_configuration_is_clean() -> None:
    report = lint([CONF])
    assert [found for found in report.diagnostics if found.severity == "error"] == []
    assert exit_code(report.diagnostics) == 0
    assert len(report.files) > 50 and report.skipped == ()
    assert report.rules_checked > 50


def test_findings_of_several_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        one="# @package _global_\ntraining: {bf16: true, fp16: true}\n",
        two="# @package _global_\ntraining: {fp8_formt: e4m3}\n",
        three="jobs: {}\n",
    )
    report = lint([tmp_path])
    errors = {found.id: Path(found.origin.file).name for found in report.diagnostics
              if found.severity == "error"}  # fmt: skip
    assert errors == {"PP101": "one.yaml", "PP002": "two.yaml"}
    assert [Path(name).name for name in report.files] == ["one.yaml", "two.yaml"]
    assert [Path(name).name for name in report.skipped] == ["three.yaml"]


def test_what_a_group_has_wrong_is_said_once(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    (conf / "recipes").mkdir(parents=True)
    (conf / "training").mkdir()
    write(conf, config="defaults: [{training: null}, _self_]\n")
    write(conf / "training", bad="bf61: true\n")
    recipe = "# @package _global_\ndefaults: [{override /training: bad}]\n"
    write(conf / "recipes", one=recipe, two=recipe)
    report = lint([conf])
    found = [each for each in report.diagnostics if each.id == "PP002"]
    assert len(found) == 1
    assert (Path(found[0].origin.file).name, found[0].origin.line) == ("bad.yaml", 1)
    assert len(report.files) == 3


def test_a_group_file_is_no_complete_plan() -> None:
    report = lint([CONF / "training" / "mxfp8.yaml", CONF / "hardware" / "mi300x.yaml"])
    assert report.diagnostics == ()
    assert report.rules_checked == 0


def test_missing_and_foreign_paths(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("echo\n")
    report = lint([tmp_path / "nope", tmp_path / "notes.txt"])
    assert [found.id for found in report.diagnostics] == ["PP010", "PP010"]
    assert exit_code(report.diagnostics) == 2
    assert "does not exist" in report.diagnostics[0].message
    assert "neither a recipe" in report.diagnostics[1].message


@pytest.mark.parametrize("data", [b"\x00\x01\x02\xff", b"", b"- a\n", b"a: [\n", b"\xff\xfe"])
def test_broken_files_are_one_message_each(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(data)
    report = lint([path])
    assert len(report.diagnostics) == 1
    assert exit_code(report.diagnostics) == 2


class TestTarget:
    RECIPE = "# @package _global_\ntraining: {bf16: true, fp8_format: e4m3, fp8_recipe: mxfp8}\n"

    def ids(self, path: Path, **target: str) -> set[str]:
        report = lint([path], target=target)
        return {found.id for found in report.diagnostics if found.severity == "error"}

    def test_it_fills_in_what_is_not_declared(self, tmp_path: Path) -> None:
        write(tmp_path, mine=self.RECIPE)
        unknown = self.ids(tmp_path)
        on_h100 = self.ids(tmp_path, gpu="h100", framework="megatron-lm")
        assert on_h100 > unknown
        report = lint([tmp_path], target={"gpu": "h100"})
        premises = [each for found in report.diagnostics for each in found.because]
        assert "--target gpu=h100" in {premise.origin.file for premise in premises}

    def test_what_is_declared_stands(self, tmp_path: Path) -> None:
        write(tmp_path, mine=self.RECIPE + "hardware: {gpu: b200}\n")
        assert self.ids(tmp_path, gpu="h100") == self.ids(tmp_path)
        assert self.ids(tmp_path, compute_capability="9.0") == self.ids(tmp_path)

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ({"gpus": "h100"}, "no target key 'gpus'; known: gpu, compute_capability"),
            ({"nodes": "two"}, "target nodes=two: input should be a valid integer"),
            ({"framework": "verl"}, "target framework=verl: input should be 'megatron-lm'"),
            ({"compute_capability": "9"}, "target compute_capability=9: string should match"),
        ],
    )
    def test_mistakes(self, target: dict[str, str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            check_target(target)


def test_a_finding_that_no_line_causes_names_its_file(tmp_path: Path) -> None:
    recipe = tmp_path / "a.yaml"
    recipe.write_text(
        "recipe: {title: t, source: [s], maturity: stable}\n"
        "software: {framework: vime}\n"
        "training: {bf16: true, nvfp4_4over6: all}\n"
        "qat: {nvfp4_fake_qat: true}\n"
        "checkpoint: {quantization_config: {quant_method: modelopt, quant_algo: NVFP4}}\n"
        "rollout: {nvfp4_inloop_patch: true}\n"
    )
    found = {each.field: each.origin for each in lint([recipe]).diagnostics if each.id == "PP525"}
    assert found["env.rollout_engine"] == Origin(str(recipe))
    assert found["training.nvfp4_4over6"].line == 3
