"""Checkpoint folders by themselves, and as the folder that a recipe names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.__main__ import main
from precision_plan.api import compile, lint
from precision_plan.plan.compiled import LintReport, exit_code
from tests.preflight.folders import folder, index, shard

FP8 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
}
RECIPE = """# @package _global_
recipe: {{title: t, maturity: experimental}}
software: {{framework: vime}}
model: {{num_layers: {layers}}}
checkpoint:
  hf_checkpoint: {folder}
  quantization_config:
    {{quant_method: fp8, activation_scheme: dynamic, weight_block_size: [{rows}, 128]}}
"""


def checkpoint(path: Path) -> Path:
    """A sound FP8 folder with one quantized matrix."""
    folder(path, FP8)
    shard(
        path / "model.safetensors",
        **{
            "model.embed_tokens.weight": ("BF16", [1024, 256]),
            "model.layers.0.mlp.down_proj.weight": ("F8_E4M3", [256, 512]),
            "model.layers.0.mlp.down_proj.weight_scale_inv": ("F32", [2, 4]),
            "lm_head.weight": ("BF16", [1024, 256]),
        },
    )
    return path


def recipe(path: Path, folder: Path | str, rows: int = 128, layers: int = 2) -> Path:
    path.write_text(RECIPE.format(folder=folder, rows=rows, layers=layers))
    return path


def of_folder(report: LintReport) -> dict[str, str]:
    """Position of every finding about checkpoint folders, by id."""
    return {
        found.id: Path(found.origin.file).name
        for found in report.diagnostics
        if found.id.startswith("PP7")
    }


class TestByItself:
    def test_a_sound_folder_is_clean(self, tmp_path: Path) -> None:
        report = lint([checkpoint(tmp_path / "m")], target={"gpu": "h100", "vllm": "0.33.0"})
        assert [found for found in report.diagnostics if found.severity != "advice"] == []
        assert [Path(name).name for name in report.files] == ["m"]
        assert report.rules_checked > 50

    def test_rules_about_the_format_point_into_config_json(self, tmp_path: Path) -> None:
        path = checkpoint(tmp_path / "m")
        config = json.loads((path / "config.json").read_text())
        config["quantization_config"]["weight_block_size"] = [128]
        (path / "config.json").write_text(json.dumps(config, indent=1))
        errors = [each for each in lint([path]).diagnostics if each.severity == "error"]
        assert errors
        assert {Path(each.origin.file).name for each in errors} == {"config.json"}
        assert all(each.origin.line for each in errors)

    def test_sharding_is_judged_by_the_target(self, tmp_path: Path) -> None:
        path = checkpoint(tmp_path / "m")
        config = {**FP8, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64}
        (path / "config.json").write_text(json.dumps(config))
        target = {"vllm": "0.33.0", "tensor_parallel_size": "8"}
        found = [each for each in lint([path], target=target).diagnostics if each.id == "PP830"]
        assert found and found[0].origin.file == "--target tensor_parallel_size=8"

    def test_below_a_folder(self, tmp_path: Path) -> None:
        checkpoint(tmp_path / "all" / "one")
        (checkpoint(tmp_path / "all" / "two") / "model.safetensors").write_bytes(b"")
        folder(tmp_path / "all" / "only-config", FP8)
        checkpoint(tmp_path / "all" / ".hidden")
        report = lint([tmp_path / "all"])
        assert [Path(name).name for name in report.files] == ["one", "two"]
        assert of_folder(report) == {"PP720": "model.safetensors"}

    def test_a_named_folder_may_lack_either(self, tmp_path: Path) -> None:
        only = folder(tmp_path / "only-config", FP8)
        assert "PP714" in of_folder(lint([only]))
        (checkpoint(tmp_path / "m") / "config.json").unlink()
        report = lint([tmp_path / "m"])
        assert of_folder(report) == {"PP710": "config.json"}
        assert exit_code(report.diagnostics) == 2

    def test_a_config_json_of_something_else(self, tmp_path: Path) -> None:
        folder(tmp_path, {"name": "x"})
        recipe(tmp_path / "r.yaml", "nowhere")
        assert [Path(name).name for name in lint([tmp_path]).files] == ["r.yaml"]

    @pytest.mark.parametrize(("text", "code"), [("{", 2), ("{}", 0)])
    def test_exit_codes(
        self, text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = checkpoint(tmp_path / "m")
        (path / "config.json").write_text(text)
        assert main(["lint", str(path), "--format", "json"]) == code
        found = json.loads(capsys.readouterr().out)["diagnostics"]
        assert ("PP711" in {each["id"] for each in found}) == (code == 2)
        (path / "model.safetensors").write_bytes(b"\0")
        assert main(["lint", str(path)]) == max(code, 1)
        assert "PP720" in capsys.readouterr().out


class TestOfARecipe:
    def test_the_folder_is_read(self, tmp_path: Path) -> None:
        path = checkpoint(tmp_path / "m")
        file = recipe(tmp_path / "r.yaml", path)
        assert of_folder(lint([file])) == {}
        (path / "model.safetensors").write_bytes(b"")
        (found,) = (each for each in lint([file]).diagnostics if each.id == "PP720")
        assert found.origin.file.endswith("m/model.safetensors")
        premise = found.because[-1]
        assert (premise.field, premise.origin.line) == ("checkpoint.hf_checkpoint", 6)

    def test_contradictions_have_both_positions(self, tmp_path: Path) -> None:
        path = checkpoint(tmp_path / "m")
        file = recipe(tmp_path / "r.yaml", path, rows=64, layers=4)
        found = {each.id: each for each in lint([file]).diagnostics if each.severity == "error"}
        for id, line, place in (("PP744", 8, 12), ("PP745", 4, 6)):
            assert found[id].origin.line == line
            origin = next(each.origin for each in found[id].because if "json" in each.origin.file)
            assert (Path(origin.file).name, origin.line) == ("config.json", place), id

    def test_a_folder_that_is_not_here_is_unknown(self, tmp_path: Path) -> None:
        file = recipe(tmp_path / "r.yaml", "org/name", rows=64, layers=4)
        assert of_folder(lint([file])) == {}
        (tmp_path / "file").touch()
        assert of_folder(lint([recipe(tmp_path / "r.yaml", tmp_path / "file")])) == {}

    def test_relative_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (checkpoint(tmp_path / "job" / "m") / "model.safetensors").write_bytes(b"")
        file = recipe(tmp_path / "r.yaml", "m")
        assert of_folder(lint([file])) == {}
        with file.open("a") as text:
            text.write("launch: {working_dir: job}\n")
        assert of_folder(lint([file])) == {"PP720": "model.safetensors"}
        checkpoint(tmp_path / "m")
        assert of_folder(lint([file])) == {"PP720": "model.safetensors"}
        recipe(file, "m")
        assert of_folder(lint([file])) == {}

    def test_a_comment_at_the_folders_line_silences(self, tmp_path: Path) -> None:
        path = checkpoint(tmp_path / "m")
        (path / "model.safetensors").write_bytes(b"")
        comment = "m  # precision-plan: ignore[PP720] still being copied\n"
        file = recipe(tmp_path / "r.yaml", path)
        file.write_text(file.read_text().replace("/m\n", "/" + comment))
        assert of_folder(lint([file])) == {}

    def test_the_plan_is_lowered_all_the_same(self, tmp_path: Path) -> None:
        (checkpoint(tmp_path / "m") / "config.json").write_text("{")
        compiled = compile(recipe(tmp_path / "r.yaml", tmp_path / "m"))
        assert "PP711" in {each.id for each in compiled.diagnostics}
        assert compiled.lowering is not None and compiled.exit_code == 2


def test_index_faults_reach_the_report(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m")
    names = ["lm_head.weight", "model.norm.weight"]
    index(path, dict.fromkeys(names, "model.safetensors"), total_size=1)
    shard(path / "mtp.safetensors", **{"mtp.weight": ("BF16", [2])})
    found = of_folder(lint([path]))
    at_index = {"PP738", "PP741", "PP742"}
    assert {id for id in found if id in {*at_index, "PP740"}} == {*at_index, "PP740"}
    assert all(found[id] == "model.safetensors.index.json" for id in at_index)
