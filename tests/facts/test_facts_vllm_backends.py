"""Names of attention backends and what their classes declare."""

from __future__ import annotations

import pytest

from precision_plan.facts.vllm import kv_dtypes
from precision_plan.facts.vllm_backends import attention_backends, backend_names


@pytest.mark.parametrize(
    ("name", "vllm", "known"),
    [
        ("TREE_ATTN", "0.20.2", True),
        ("TREE_ATTN", "0.21.0", False),
        ("TURBOQUANT", "0.19.1", False),
        ("TURBOQUANT", "0.20.0", True),
        ("ROCM_OCTAVE", "0.32.0", False),
        ("FLASH_ATTN", "0.12.0", True),
    ],
)
def test_names_by_release(name: str, vllm: str, known: bool) -> None:
    assert (vllm in backend_names()[name].versions) is known


def test_what_a_class_declares() -> None:
    flash = backend_names()["FLASH_ATTN"]
    assert flash.declared("0.12.0", "kv") == ("auto",)
    assert flash.declared("0.26.0", "kv") == ("auto", "float16", "bfloat16")
    assert flash.declared("0.27.0", "kv") == ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3")
    assert backend_names()["TREE_ATTN"].declared("0.33.0", "kv") is None
    assert backend_names()["CUSTOM"].declared("0.33.0", "kv") is None
    assert backend_names()["B12X"].declared("0.33.0", "dtypes") == ("bfloat16",)


def test_declared_kv_dtypes_are_kv_dtypes() -> None:
    for backend in backend_names().values():
        for row in backend.declares:
            since = row["since"] or "0.12.0"
            for name in row["kv"]:
                assert name in kv_dtypes(), (backend.name, name)
                assert since in kv_dtypes()[name].versions, (backend.name, name, since)


def test_what_was_run_is_declared() -> None:
    """A selection that was run takes no more than the class declares."""
    for backend in attention_backends():
        declared = backend_names()[backend.name].declared("0.33.0", "kv")
        taken = frozenset().union(*(takes.kv for takes in backend.takes))
        assert declared is not None and taken <= set(declared), backend.name
