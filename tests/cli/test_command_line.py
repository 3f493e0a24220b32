"""The command line as scripts and CI see it: exit codes, streams, files, quiet endings."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from precision_plan import __version__
from precision_plan.__main__ import main
from precision_plan.cli import VERBS
from precision_plan.cli._output import use_color, width

ROOT = Path(__file__).parents[2]
CLEAN = "qwen3-30b-fp8"


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


class TestUsage:
    @pytest.mark.parametrize("argv", [["--version"], ["-V"]])
    def test_version(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(argv) == 0
        assert capsys.readouterr().out == f"precision-plan {__version__}\n"

    def test_help_lists_every_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        shown = capsys.readouterr().out
        assert all(f"\n  {verb} " in shown for verb in VERBS)
        assert all(len(line) <= 90 for line in shown.splitlines())
        assert main([]) == 2

    @pytest.mark.parametrize("verb", VERBS)
    def test_help_of_a_verb(self, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([verb, "--help"]) == 0
        assert f"usage: precision-plan {verb}" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("argv", "message", "hint"),
        [
            (["paln"], "there is no verb 'paln'", "did you mean 'plan'?"),
            (["zzz"], "there is no verb 'zzz'", "precision-plan --help lists the verbs"),
            (["--verbose"], "unknown option '--verbose'", "precision-plan --help"),
            (["plan"], "required: RECIPE", "precision-plan plan --help"),
            (["plan", CLEAN, "--formt", "json"], "unknown argument '--formt'", "--format?"),
            (["plan", CLEAN, "--format", "html"], "invalid choice: 'html'", "plan --help"),
            (["plan", CLEAN, "--profile", "strict"], "invalid choice: 'strict'", "plan --help"),
            (["lint"], "required: PATH", "precision-plan lint --help"),
            (["lint", "conf", "--target", "gpu"], "--target gpu: not KEY=VALUE", "gpu=b200"),
            (["lint", "conf", "--target", "gpus=x"], "no key 'gpus'", "did you mean 'gpu'?"),
            (["lint", "conf", "--target", "nodes=x"], "target nodes=x: input should be", "--help"),
            (["explain", "fp61-with-bf16"], "nothing is known of", "did you mean fp16-with-bf16?"),
            (["explain", "#"], "nothing is known of '#'", "precision-plan rules"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_a_mistake_is_one_line_and_a_hint(
        self, argv: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(argv) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        first, second = shown.err.splitlines()
        assert first.startswith("precision-plan: ") and message in first
        assert second.startswith("  hint: ") and hint in second


class TestPlan:
    def test_a_clean_recipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", CLEAN]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"{CLEAN}  ")
        assert max(map(len, shown.splitlines())) <= 80
        for part in ("Tensors", "Megatron", "Transformer Engine: Float8BlockScaling", "vLLM"):
            assert f"\n{part}" in shown

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", CLEAN, "--format", "json", "hardware=b200"]) in (0, 1)
        data = json.loads(capsys.readouterr().out)
        assert data["plan"]["hardware"]["gpu"] == "b200"
        assert "--fp8-format" in data["lowered"]["megatron"]["argv"]

    def test_options_and_overrides_mix(self, capsys: pytest.CaptureFixture[str]) -> None:
        argv = ["plan", "--format", "json", CLEAN, "training.fp16=true", "--profile", "ci", "+a=1"]
        assert main(argv) == 1
        found = json.loads(capsys.readouterr().out)["diagnostics"]
        assert {"PP101", "PP002"} <= {each["id"] for each in found}

    def test_errors_exit_with_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", CLEAN, "training.fp16=true"]) == 1
        assert "error[PP101] fp16-with-bf16" in capsys.readouterr().out

    def test_an_unknown_recipe_is_answered_with_the_closest(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["plan", "qwen3-30b-fp9"]) == 2
        assert "did you mean qwen3-30b-fp8?" in capsys.readouterr().out

    def test_search_path(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "recipes").mkdir()
        (tmp_path / "recipes" / "mine.yaml").write_text(
            "# @package _global_\ndefaults: [{override /hardware: h200}]\n"
        )
        assert main(["plan", "mine", "--search-path", str(tmp_path), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["plan"]["hardware"]["gpu"] == "h200"

    def test_output_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = tmp_path / "plan.json"
        target.write_text("old")
        target.chmod(0o640)
        assert main(["plan", CLEAN, "--format", "json", "-o", str(target)]) == 0
        assert capsys.readouterr().out == ""
        assert json.loads(target.read_text())["recipe"] == CLEAN
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]

    def test_output_into_no_folder(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = tmp_path / "missing" / "plan.txt"
        assert main(["plan", CLEAN, "-o", str(target)]) == 2
        assert f"cannot write {target}: No such file or directory" in capsys.readouterr().err


class TestLint:
    def test_the_recipes_are_clean(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["lint", "conf/recipes"]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("0 errors, 0 warnings")

    def test_fail_on(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "untitled.yaml"
        path.write_text("training: {bf16: true}\n")
        assert main(["lint", str(path)]) == 0
        assert main(["lint", str(path), "--fail-on", "warning"]) == 1
        assert main(["lint", str(path), "--fail-on", "warning", "--profile", "explore"]) == 0

    def test_a_missing_path_exits_with_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["lint", "conf/recipes", "no/such/path"]) == 2
        assert "no/such/path does not exist" in capsys.readouterr().out

    def test_json_and_target(self, capsys: pytest.CaptureFixture[str]) -> None:
        argv = ["lint", "conf/recipes", "--format", "json", "--target", "gpu=h100", "cuda=12.9"]
        assert main(argv) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["summary"]["errors"] == 0
        assert "conf/recipes/qwen3-30b-fp8.yaml" in data["summary"]["files"]


class TestKnowledge:
    def test_rules(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rules"]) == 0
        assert "PP101  error" in capsys.readouterr().out
        assert main(["rules", "--format", "json"]) == 0
        pages = json.loads(capsys.readouterr().out)
        assert [page["id"] for page in pages] == sorted(page["id"] for page in pages)
        assert pages[0]["docs"] == "docs/rules/PP001.md"

    @pytest.mark.parametrize("subject", ["PP101", "pp101", "fp16-with-bf16"])
    def test_explain_a_rule(self, subject: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", subject]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("error[PP101] fp16-with-bf16\n")
        assert "\nWhy\n" in shown and "  training: {bf16: true, fp16: true}\n" in shown

    @pytest.mark.parametrize(
        "subject", ["--fp8-format", "fp8-format", "fp8_format", "training.fp8_format"]
    )
    def test_explain_a_flag(self, subject: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", subject]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(
            "--fp8-format  command-line flag\n  meaning      turns FP8 on: e4m3"
        )
        assert "takes        e4m3, hybrid" in shown
        assert "arguments.py" in shown or "transformer_config.py" in shown

    @pytest.mark.parametrize(
        "subject",
        ["NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "training.fp8_block_scaling_fp32_scales"],
    )
    def test_explain_a_variable(self, subject: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", subject]) == 0
        shown = capsys.readouterr().out
        assert "NVTE_FP8_BLOCK_SCALING_FP32_SCALES  environment variable" in shown
        assert "takes        0, 1" in shown

    def test_explain_a_dead_variable(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "PYTHONBUFFERED"]) == 0
        shown = capsys.readouterr().out
        assert "environment variable without effect" in shown
        assert "PYTHONUNBUFFERED" in shown

    def test_schema(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["schema"]) == 0
        shown = capsys.readouterr().out
        assert main(["schema", "-o", str(tmp_path / "s.json")]) == 0
        assert (tmp_path / "s.json").read_text() == shown
        assert json.loads(shown)["additionalProperties"] is False


class TestColour:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    @pytest.mark.parametrize(
        ("choice", "env", "terminal", "colored"),
        [
            ("auto", {}, True, True),
            ("auto", {}, False, False),
            ("auto", {"NO_COLOR": "1"}, True, False),
            ("auto", {"FORCE_COLOR": "1"}, False, True),
            ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
            ("auto", {"FORCE_COLOR": "0"}, False, False),
            ("auto", {"TERM": "dumb"}, True, False),
            ("always", {"NO_COLOR": "1"}, False, True),
            ("never", {"FORCE_COLOR": "1"}, True, False),
        ],
    )
    def test_choice(
        self, choice: str, env: dict[str, str], terminal: bool, colored: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("TERM", "xterm")
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        stream = self.Terminal() if terminal else io.StringIO()
        assert use_color(choice, stream) is colored

    def test_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert width(io.StringIO()) == 80
        monkeypatch.setenv("COLUMNS", "120")
        assert width(io.StringIO()) == 120

    def test_always(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", CLEAN, "--color", "always"]) == 0
        assert "\x1b[1mMegatron\x1b[0m" in capsys.readouterr().out


class TestProcess:
    def run(self, *argv: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "precision_plan", *argv],
            text=True,
            capture_output=True,
            check=False,
            **options,  # type: ignore[call-overload]
        )

    def test_a_reader_that_goes_away_is_no_error(self) -> None:
        command = f"{sys.executable} -m precision_plan rules --format json | head -c 1"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr, done.returncode) == ("[", "", 0)

    def test_an_ascii_terminal_still_gets_the_text(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text("recipe: {title: 精度}\ntraining: {bf16: true}\n", encoding="utf-8")
        env = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = self.run("plan", str(path), env=env)
        assert done.returncode == 0, done.stderr
        assert r"\u7cbe\u5ea6" in done.stdout

    def test_an_interrupt_is_quiet(self) -> None:
        code = (
            "import sys, precision_plan.cli as cli\n"
            "def stop(*_): raise KeyboardInterrupt\n"
            "cli._run_verb = stop\n"
            "from precision_plan.__main__ import main\n"
            "sys.exit(main(['plan', 'x']))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def explained(subject: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", subject]) == 0
    return " ".join(capsys.readouterr().out.split())


class TestWhatAFlagNeedsAndExcludes:
    def test_what_it_is_refused_with(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = explained("--fp8-param-gather", capsys)
        refused = shown.partition(" refused ")[2].partition(" warned about ")[0]
        assert "PP126 FP8 parameters need FP8 training" in refused
        assert "PP302 FP8 parameters and the optimizer on the CPU exclude each other" in refused
        assert "PP393" in shown.partition(" warned about ")[2]

    def test_a_variable_and_its_field_are_one(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = explained("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", capsys)
        assert "PP621" in shown.partition(" refused ")[2]

    def test_an_engine_argument(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "PP431" in explained("--kv-cache-dtype", capsys)

    def test_a_flag_that_no_rule_speaks_of(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "PP" not in explained("--data-path", capsys)


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        ("rollout.mamba_ssm_cache_dtype", "--mamba-ssm-cache-dtype  vLLM engine argument"),
        ("--vllm-kv-cache-dtype", "--kv-cache-dtype  vLLM engine argument"),
        ("--params-dtype", "status       Megatron-LM has no such flag"),
        ("training.fp8_format", "not e5m2     "),
        ("--hf-checkpoint", "read by      vime, slime, miles"),
        ("--hf-checkpoint", "command-line flag\n  meaning      HF folder of tokenizer and rollout"),
    ],
)
def test_explain_knows_every_table(
    subject: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", subject]) == 0
    assert shown in capsys.readouterr().out
