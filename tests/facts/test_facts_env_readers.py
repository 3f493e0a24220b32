"""Readers of environment variables: each against its own Python expression."""

import ast
import ctypes
import json
import os

import pytest

from precision_plan.facts.env_names import listed_names
from precision_plan.facts.env_readers import (
    EnvReader,
    env_readers,
    misread,
    read_as,
    reader_names,
)
from precision_plan.facts.env_vars import env_var
from precision_plan.facts.vllm_env_names import declared_names

C_NUMBERS = ("08", "017", "0x", "0X1f", "-0x10", "--1", "4M", "\t7", "9" * 19, "-9" + "9" * 19)
NUMBERS = ("", " ", "0", "1", "2", "-1", "+1", " 1", "1 ", "01", "1_0", "1.5", "1e3", "0x1", "1\n")
WORDS = (
    "true",
    "True",
    "TRUE",
    " true",
    "false",
    "False",
    "yes",
    "no",
    "on",
    "off",
    "None",
    "none",
)
OTHERS = ("a,b", "{}", "[1]", "nan", "inf", "\u0661", "auto", "MAE", "fp8", "spawn", "Debug")
TEXTS = (*C_NUMBERS, *NUMBERS, *WORDS, *OTHERS)
EVERY = [reader for name in (*reader_names(), *listed_names()) for reader in env_readers(name)]
CLASSES = sorted({(reader.reads, reader.choices) for reader in EVERY})
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.strtoll.restype = ctypes.c_longlong


def strtoll(text: str) -> int | None:
    """What NCCL makes of a text, by the C library itself; ``None``: as if it were not set."""
    ctypes.set_errno(0)
    value = LIBC.strtoll(text.encode(), None, 0)
    return None if not text or ctypes.get_errno() else int(value)


ALLOWED = {"strtoll": strtoll, "bool": bool, "int": int, "float": float, "json": json, "os": os}

OF_THEIR_OWN = {
    "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS",
    "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS",
    "VLLM_HUMMING_INPUT_QUANT_CONFIG",
    "VLLM_HUMMING_ONLINE_QUANT_CONFIG",
    "VLLM_LOG_STATS_INTERVAL",
    "VLLM_MAIN_CUDA_VERSION",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",
    "VLLM_PORT",
    "VLLM_RUST_FRONTEND_PATH",
    "VLLM_TPU_USING_PATHWAYS",
    "VLLM_USE_PRECOMPILED",
}
"""Read by longer functions that are not retold."""


def executed(reads: str, choices: tuple[str, ...], text: str) -> tuple[str, object]:
    """What the expression itself gives; only names of the list above can occur in it."""
    expression = {
        "path": "x",
        "x.lower() in choices": "x.lower() in [choice.lower() for choice in choices]",
    }.get(reads, reads)
    tree = ast.parse(expression, mode="eval")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names <= {"x", "choices", "choice", *ALLOWED}, expression
    try:
        scope = {"__builtins__": {}, "x": text, "choices": choices, **ALLOWED}
        value = eval(compile(tree, "reader", "eval"), scope)
    except ValueError:
        return ("error", None)
    if choices:
        return ("value", text) if value else ("error", None)
    if value is None and reads != "json.loads(x)":
        return ("unset", None)
    if isinstance(value, bool) and reads != "json.loads(x)":
        return ("on" if value else "off", value)
    return ("value", value)


@pytest.mark.parametrize(("reads", "choices"), CLASSES, ids=str)
def test_every_reader_does_what_its_expression_does(reads: str, choices: tuple[str, ...]) -> None:
    reader = EnvReader("X", "vllm", reads, "test", choices=choices)
    for text in (*TEXTS, *choices, *(choice.upper() for choice in choices)):
        assert repr(tuple(read_as(reader, text))) == repr(executed(reads, choices, text)), text


def test_a_default_is_read_without_complaint() -> None:
    for reader in EVERY:
        if reader.default is not None:
            assert read_as(reader, reader.default).kind != "error", reader


def test_accepted_values_of_a_row_are_read_by_its_newest_readers() -> None:
    for name in reader_names():
        row = env_var(name)
        for reader in env_readers(name) if row and row.values else ():
            if reader.versions.until is None and not name.endswith("AMAX_ALGO"):
                for value in row.values or ():  # type: ignore[union-attr]
                    assert read_as(reader, value).kind != "error", (name, value, reader)


def test_switches_of_vllm_0_33_have_readers() -> None:
    names = {name for name in declared_names("0.33.0") if name.startswith("VLLM_")}
    assert len(names) == 303
    without = {
        name
        for name in names
        if not any("0.33.0" in reader.versions for reader in env_readers(name))
    }
    assert without == OF_THEIR_OWN


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "true", "off"),
        ("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "1", "on"),
        ("NVTE_FLASH_ATTN", "true", "error"),
        ("VLLM_USE_DEEP_GEMM_E8M0", "false", "error"),
        ("VLLM_ROCM_USE_AITER", "True", "on"),
        ("VLLM_USE_BREAKABLE_CUDAGRAPH", "true", "off"),
        ("VLLM_FLOAT32_MATMUL_PRECISION", "HIGH", "value"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "Spawn", "error"),
        ("OPEN_TRAINING_INT4_FAKE_QAT_FLAG", "yes", "off"),
        ("NCCL_IB_DISABLE", "true", "value"),
        ("SGLANG_USE_MODELSCOPE", "Y", "on"),
        ("SGLANG_ENABLE_JIT_DEEPGEMM", "on", "unset"),
        ("RAY_LOG_TO_DRIVER", "yes", "off"),
        ("TORCH_NCCL_BLOCKING_WAIT", "on", "error"),
        ("HF_HUB_DISABLE_TELEMETRY", "on", "on"),
    ],
)
def test_known_readings(name: str, text: str, kind: str) -> None:
    newest = [reader for reader in env_readers(name) if reader.versions.until is None]
    assert {read_as(reader, text).kind for reader in newest} == {kind}


def test_misread_says_how() -> None:
    (reader,) = env_readers("NVTE_FP8_BLOCK_SCALING_FP32_SCALES")
    assert misread(reader, "2") == "reads as off: x == '1'"
    assert misread(reader, "1") is None and misread(reader, "false") is None
    (engine,) = env_readers("VLLM_USE_DEEP_GEMM")
    assert misread(engine, "2") is None
    assert misread(engine, "true") == "is refused by bool(int(x))"


def test_nccl_takes_words_for_zero() -> None:
    (reader,) = env_readers("NCCL_IB_DISABLE")
    assert reader.package == "nccl"
    assert misread(reader, "true") == "reads as 0: strtoll(x)"
    assert misread(reader, "4M") == "reads as 4: strtoll(x)"
    for text in ("0", "1", "-1", " 2 ", "0x10", "false", ""):
        assert misread(reader, text) is None, text
