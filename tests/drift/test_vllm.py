"""vLLM's sources against the facts: a tree made from the facts, and each kind of drift in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.cli import run
from precision_plan.drift.changes import Change, Report
from precision_plan.drift.check import check_vllm
from precision_plan.drift.source import SourceError
from tests.drift import trees
from tests.drift import vllm_trees as shapes
from tests.drift.checking import add, edit, summary

VERSION = "0.33.0"
RELEASES = ("0.12.0", "0.17.1", "0.20.0", "0.22.1", "0.28.0", VERSION)


def check(tmp_path: Path, files: trees.Files, version: str | None = None) -> Report:
    return check_vllm(str(trees.wheel(tmp_path / "vllm.whl", files)), version)


def changed(tmp_path: Path, path: str, pattern: str, text: str) -> Change:
    """The one change that rewriting one place of the tree makes."""
    report = check(tmp_path, edit(shapes.vllm(VERSION), path, pattern, text))
    (change,) = report.changes
    return change


@pytest.mark.parametrize("version", RELEASES)
def test_no_drift(tmp_path: Path, version: str) -> None:
    report = check(tmp_path, shapes.vllm(version))
    assert (report.found, report.facts, report.changes) == (version, version, ())
    compared = dict(report.compared)
    assert compared["arguments"] > 190
    assert compared["lists of choices"] == 4
    assert compared["methods"] >= 23 and compared["attention backends"] >= 23
    assert compared["declared variables"] >= 217


def test_two_releases_differ_as_the_facts_say(tmp_path: Path) -> None:
    report = check(tmp_path, shapes.vllm("0.28.0"), VERSION)
    found = {summary(change)[:3] for change in report.changes}
    assert ("vanished", "flag", "--aux-output-config") in found
    assert ("changed", "flag", "--moe-backend") in found
    assert ("changed", "choices", "--kv-cache-dtype") in found
    assert ("vanished", "attention backend", "ROCM_OCTAVE") in found
    assert ("changed", "attention backend", "FLASHMLA_SPARSE") in found
    assert ("changed", "variable", "VLLM_ALLREDUCE_USE_FLASHINFER") in found
    older = check(tmp_path, shapes.vllm("0.12.0"), "0.17.1")
    aspects = {summary(change) for change in older.changes}
    assert ("changed", "method", "fp8", "min_capability") in aspects
    assert ("appeared", "flag", "--calculate-kv-scales", None) not in aspects
    newer = check(tmp_path, shapes.vllm("0.22.1"), VERSION)
    (gone,) = [change for change in newer.changes if change.name == "--calculate-kv-scales"]
    assert gone.kind == "appeared"
    assert gone.note == "in the facts for up to 0.27, not for 0.33.0"


def test_argument_vanished(tmp_path: Path) -> None:
    pattern = r"^.*'--enforce-eager'.*\n"
    change = changed(tmp_path, shapes.ENGINE, pattern, "")
    assert summary(change) == ("vanished", "flag", "--enforce-eager", None)
    assert not change.precise and change.fact_source is not None
    change = changed(tmp_path, shapes.ENGINE, r"^.*'--quantization-config'.*\n", "")
    assert change.precise


def test_argument_appeared(tmp_path: Path) -> None:
    text = "'--logits-dtype', choices=['auto', 'fp8'], default='auto')"
    change = changed(
        tmp_path,
        shapes.ENGINE,
        r"^        return parser\n@",
        f"        model_group.add_argument({text}\n        return parser\n@",
    )
    assert summary(change) == ("appeared", "flag", "--logits-dtype", None)
    assert change.precise
    assert change.sources == {"kind": "value", "choices": ["auto", "fp8"], "default": "auto"}
    assert change.at is not None and change.at.startswith(shapes.ENGINE)


def test_frontend_argument_appeared(tmp_path: Path) -> None:
    change = changed(
        tmp_path, shapes.CLI, r"^(class FrontendArgs.*)$", r"\1\n    a_new_port: int = 8001"
    )
    assert summary(change) == ("appeared", "flag", "--a-new-port", None)
    assert (change.precise, change.sources) == (
        False,
        {"kind": "value", "type": "int", "default": 8001},
    )


@pytest.mark.parametrize(
    ("pattern", "text", "flag", "aspect", "sources"),
    [
        (r"(logprobs_mode: )Literal\[.*\]", r"\1Literal['raw_logits', 'x']", "", "choices", None),
        (r"(enforce_eager: )bool = False", r"\1bool = True", "", "default", True),
        (r"(enable_eplb: )bool = False", r"\1str = 'no'", "", "kind", "value"),
        (r"(lora_dtype: ).*", r"\1str = 'auto'", "", "choices", None),
        (r"Field\(0\.92, gt=0\)", "Field(0.95, gt=0)", "gpu_memory_utilization", "default", 0.95),
        (r"(max_model_len: int \| None = )None", r"\g<1>0", "", "default", 0),
    ],
)
def test_argument_changed(
    tmp_path: Path, pattern: str, text: str, flag: str, aspect: str, sources: object
) -> None:
    files = edit(shapes.vllm(VERSION), shapes.CONFIG, pattern, text)
    changes = check(tmp_path, files).changes
    name = "--" + (flag or pattern.split(":")[0].strip("(")).replace("_", "-")
    (change,) = [change for change in changes if change.aspect == aspect]
    assert summary(change) == ("changed", "flag", name, aspect)
    if sources is not None:
        assert change.sources == sources


def test_alias_moved(tmp_path: Path) -> None:
    """An alias that another argument takes over is one change, whatever the names are."""
    files = edit(shapes.vllm(VERSION), shapes.ENGINE, r"'-tp', ", "")
    files = edit(files, shapes.ENGINE, r"('--max-model-len')", r"\1, '-tp'")
    found = {summary(change)[2:] for change in check(tmp_path, files).changes}
    assert found == {("--tensor-parallel-size", "aliases"), ("--max-model-len", "aliases")}


def test_entry_of_a_json_argument(tmp_path: Path) -> None:
    change = changed(tmp_path, shapes.TRANSFER, r"'nccl_m2n'", "'nccl_n2m'")
    assert summary(change) == ("changed", "flag", "--weight-transfer-config backend", "choices")
    change = changed(tmp_path, shapes.TRANSFER, r"^    backend", "    transport")
    assert summary(change) == ("vanished", "flag", "--weight-transfer-config backend", None)
    report = check(tmp_path, shapes.vllm(VERSION))
    (gap,) = [gap for gap in report.gaps if "any JSON object" in gap.what]
    assert gap.names == ("--hf-overrides head_dtype",)


@pytest.mark.parametrize(
    ("path", "pattern", "text", "expected"),
    [
        (
            shapes.CACHE,
            r"'nvfp4_4over6'",
            "'nvfp4_5over7'",
            ("changed", "choices", "--kv-cache-dtype", None),
        ),
        (
            shapes.METHODS,
            r"^(QuantizationMethods = Literal\[)",
            r"\1'fp3', ",
            ("changed", "choices", "--quantization", None),
        ),
        (
            shapes.METHODS,
            r"^(DEPRECATED.*)'fp_quant'",
            r"\1'inc'",
            ("changed", "method", "lists", "deprecated"),
        ),
        (shapes.ROCM, r"'mxfp4', ", "", ("changed", "method", "lists", "rocm")),
        (
            shapes.SHORTHANDS,
            r"^    'fp8_per_block'.*\n",
            "",
            ("changed", "method", "lists", "online"),
        ),
        (
            shapes.CLASSES,
            r"(class Fp8Config(?:.*\n){7}        return )75",
            r"\g<1>89",
            ("changed", "method", "fp8", "min_capability"),
        ),
        (
            shapes.CLASSES,
            r"(class Mxfp4Config(?:.*\n){4}        return )\[torch.bfloat16\]",
            r"\1[torch.bfloat16, torch.half]",
            ("changed", "method", "mxfp4", "act_dtypes"),
        ),
        (
            shapes.REGISTRY,
            r"^    FLASHMLA = ",
            "    FLASHMLA_2 = ",
            ("vanished", "attention backend", "FLASHMLA", None),
        ),
        (
            shapes.BACKENDS,
            r"(class TurboquantBackend(?:.*\n){2}.*)'turboquant_3bit_nc'",
            r"\1'turboquant_2bit_nc'",
            ("changed", "attention backend", "TURBOQUANT", "kv"),
        ),
        (
            shapes.BACKENDS,
            r"(class B12XBackend.*\n.*= )\[torch.bfloat16\]",
            r"\1[torch.float16]",
            ("changed", "attention backend", "B12X", "dtypes"),
        ),
        (
            shapes.CONFIG,
            r"^    'glm4'",
            "    'glm7'",
            ("changed", "model family", "float16", "refused"),
        ),
        (
            shapes.ENVS,
            r"^(    'VLLM_USE_DEEP_GEMM_E8M0'.*), '1'",
            r"\1, '0'",
            ("changed", "variable", "VLLM_USE_DEEP_GEMM_E8M0", "default"),
        ),
    ],
)
def test_each_kind(
    tmp_path: Path, path: str, pattern: str, text: str, expected: tuple[object, ...]
) -> None:
    files = edit(shapes.vllm(VERSION), path, pattern, text)
    found = {summary(change): change for change in check(tmp_path, files).changes}
    assert expected in found
    assert found[expected].precise
    assert found[expected].at is not None or expected[0] == "vanished"


def test_backend_appeared(tmp_path: Path) -> None:
    files = add(
        shapes.vllm(VERSION),
        shapes.REGISTRY,
        "    NEW_ATTN = 'vllm.v1.attention.backends.classes.B12XBackend'\n",
    )
    (change,) = check(tmp_path, files).changes
    assert summary(change) == ("appeared", "attention backend", "NEW_ATTN", None)
    assert "fp8_e4m3" in change.sources


def test_schemes(tmp_path: Path) -> None:
    pattern = r"(class CompressedTensorsW4A4Fp4(?:.*\n){3}        return )75"
    change = changed(tmp_path, shapes.SCHEMES, pattern, r"\g<1>100")
    name = "compressed-tensors w4a4_nvfp4"
    assert summary(change) == ("changed", "method", name, "min_capability")
    assert (change.facts, change.sources) == (75, 100)
    change = changed(tmp_path, shapes.SCHEMES, r"class CompressedTensorsWNA16", "class Renamed")
    assert summary(change) == ("vanished", "method", "compressed-tensors wna16", None)
    new = "class CompressedTensorsW2A2(CompressedTensorsScheme):\n    pass\n"
    report = check(tmp_path, add(shapes.vllm(VERSION), shapes.SCHEMES, new))
    (gap,) = [gap for gap in report.gaps if gap.what.startswith("compressed-tensors schemes")]
    assert (gap.names, report.changes) == (("CompressedTensorsW2A2",), ())


def test_recurrent_models(tmp_path: Path) -> None:
    line = "    'NewHybridForCausalLM': ('hybrid', 'Qwen3_5Model'),\n}"
    change = changed(tmp_path, shapes.MODELS, r"^}", line)
    assert summary(change) == ("changed", "model family", "NewHybridForCausalLM", "state")
    assert (change.facts, change.sources) == (["no recurrent state"], ["recurrent state"])
    change = changed(tmp_path, shapes.HYBRID, r"^class KimiK3Model\(.*\)", "class KimiK3Model(X)")
    assert summary(change) == ("changed", "model family", "KimiK3ForCausalLM", "state")
    assert change.fact_source is not None


def test_models_that_are_not_found(tmp_path: Path) -> None:
    lines = "    'AForCausalLM': ('absent', 'A'),\n    'BForCausalLM': ('hybrid', 'B'),\n}"
    report = check(tmp_path, edit(shapes.vllm(VERSION), shapes.MODELS, r"^}", lines))
    assert report.changes == ()
    (gap,) = [gap for gap in report.gaps if gap.what == "models whose classes were not found"]
    assert gap.names == ("AForCausalLM", "BForCausalLM")


def test_declared_variables(tmp_path: Path) -> None:
    row = "    'VLLM_FP3_KV': lambda: os.getenv('VLLM_FP3_KV', '0'),\n}"
    files = edit(shapes.vllm(VERSION), shapes.ENVS, r"^}", row)
    (change, *_) = check(tmp_path, files).changes
    assert summary(change) == ("appeared", "variable", "VLLM_FP3_KV", None)
    files = edit(shapes.vllm(VERSION), shapes.ENVS, r"^    'VLLM_PORT'.*\n", "")
    (change,) = check(tmp_path, files).changes
    assert summary(change) == ("vanished", "variable", "VLLM_PORT", None)
    assert not change.precise


def test_what_only_running_tells_is_a_gap(tmp_path: Path) -> None:
    files = edit(
        shapes.vllm(VERSION), shapes.CONFIG, r"(lora_dtype: .* = )'auto'", r"\1pick_dtype()"
    )
    body = "        if current_platform.is_rocm():\n            return 90\n        return 75"
    files = edit(
        files, shapes.CLASSES, r"(class Fp8Config(?:.*\n){7})        return 75", rf"\1{body}"
    )
    files = edit(
        files,
        shapes.ENGINE,
        r"^(        model_kwargs = .*)$",
        r"\1\n        parser.add_argument(f'--{name}')",
    )
    report = check(tmp_path, files)
    assert report.changes == ()
    gaps = {gap.what: gap.names for gap in report.gaps}
    assert gaps["options of arguments that are worked out at run time"] == (
        "--lora-dtype: default",
    )
    (name,) = gaps["methods whose least capability or dtypes are worked out"]
    assert name.startswith(f"fp8 ({shapes.CLASSES}:")
    assert len(gaps["arguments whose names or options are built at run time"]) == 1


def test_without_the_serving_parser(tmp_path: Path) -> None:
    files = {path: text for path, text in shapes.vllm(VERSION).items() if path != shapes.CLI}
    report = check(tmp_path, files)
    assert report.changes == ()
    (gap,) = [gap for gap in report.gaps if "engine's part of the parser" in gap.what]
    assert "--api-key" in gap.names and "--dtype" not in gap.names


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (shapes.ENGINE, "arguments: these sources have no parser"),
        (shapes.METHODS, "methods: these sources have none"),
        (shapes.REGISTRY, "attention backends: these sources have none"),
        (shapes.CONFIG, "model families without float16"),
        (shapes.ENVS, "declared variables: these sources have none"),
        (shapes.MODELS, "models: these sources have none"),
        (shapes.SCHEMES, "schemes: these sources have none"),
        (shapes.HYBRID, "models whose classes were not found"),
        (shapes.CACHE, "lists of choices that these sources do not declare"),
        (shapes.CLASSES, "methods without a class among these sources"),
        (shapes.BACKENDS, "attention backends whose classes declare no dtypes"),
        (shapes.ROCM, "lists of methods that these sources do not declare"),
    ],
)
@pytest.mark.parametrize("text", ["def broken(:\n", "x = 1\n"])
def test_a_broken_file_is_a_gap(tmp_path: Path, path: str, what: str, text: str) -> None:
    """No traceback, and nothing is left out without a word."""
    files = {**shapes.vllm(VERSION), path: text}
    if path == shapes.ENGINE:
        files[shapes.CLI] = text
    report = check(tmp_path, files)
    assert any(gap.what.startswith(what) for gap in report.gaps)
    told = "not parsed" in " ".join(gap.what for gap in report.gaps)
    # a file without such a list or class is not opened for it
    assert told is (text.startswith("def") and path not in (shapes.CACHE, shapes.HYBRID))


def test_sources_without_a_version(tmp_path: Path) -> None:
    files = {p: text for p, text in shapes.vllm(VERSION).items() if "dist-info" not in p}
    with pytest.raises(SourceError, match="do not tell their version"):
        check(tmp_path, files)
    assert check(tmp_path, files, VERSION).changes == ()


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = trees.folder(tmp_path / "site-packages", shapes.vllm(VERSION))
    assert run(["catalog", "diff", "--vllm", str(root)]) == 0
    out = capsys.readouterr().out
    assert "vllm 0.33.0" in out and "no drift" in out and "not compared" in out
    assert run(["catalog", "diff", "--vllm", str(root), "--version", "0.32.0"]) == 1
    assert "appeared  attention backend ROCM_OCTAVE" in capsys.readouterr().out
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"PK\x03\x04 no archive")
    assert run(["catalog", "diff", "--vllm", str(broken)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = edit(shapes.vllm(VERSION), shapes.ROCM, r"'mxfp4', ", "")
    root = trees.folder(tmp_path / "vllm", files)
    assert run(["catalog", "diff", "--vllm", str(root), "--format", "json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert report["summary"] == {"changed": 1}
    (change,) = report["changes"]
    assert (change["subject"], change["aspect"]) == ("method", "rocm")
    assert "mxfp4" in change["facts"] and "mxfp4" not in change["sources"]
    assert report["compared"]["arguments"] > 300
