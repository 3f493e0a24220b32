"""The choice of attention backends against a few answers of the real selection."""

from __future__ import annotations

import pytest

from precision_plan.facts.vllm_selection import (
    Layer,
    backend_names,
    every_selectable,
    refusals,
    select,
    selection_order,
)

CAPABILITIES = ((7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))


@pytest.mark.parametrize(
    ("capability", "layer", "backend"),
    [
        ((7, 5), Layer(128, "float16", "auto", False), "TRITON_ATTN"),
        ((8, 0), Layer(128, "bfloat16", "fp8", False), "FLASHINFER"),
        ((8, 9), Layer(80, "bfloat16", "fp8", False), "TRITON_ATTN"),
        ((9, 0), Layer(128, "bfloat16", "fp8", False), "FLASH_ATTN"),
        ((9, 0), Layer(64, "bfloat16", "nvfp4", False), None),
        ((10, 0), Layer(64, "bfloat16", "nvfp4", False), "FLASHINFER"),
        ((9, 0), Layer(576, "bfloat16", "auto", True), "FLASH_ATTN_MLA"),
        ((9, 0), Layer(576, "bfloat16", "fp8", True), "FLASHMLA"),
        ((10, 0), Layer(576, "float16", "auto", True), "FLASHINFER_MLA"),
        ((12, 0), Layer(576, "bfloat16", "fp8_e4m3", True), "TRITON_MLA"),
        ((9, 0), Layer(128, "bfloat16", "turboquant_k8v4", False), "TURBOQUANT"),
        ((8, 0), Layer(64, "bfloat16", "auto", False, sinks=True), "TRITON_ATTN"),
        ((9, 0), Layer(128, "bfloat16", "fp8_inc", False), None),
    ],
)
def test_selection(capability: tuple[int, int], layer: Layer, backend: str | None) -> None:
    assert select(capability, layer) == backend


def test_every_reason_is_named() -> None:
    why = refusals("FLASHINFER", (9, 0), Layer(80, "float32", "fp8_inc", True, 8, True, True))
    assert len(why) == 7
    assert refusals("FLASH_ATTN", (7, 5), Layer(128, "float16", "auto", False)) == (
        "it does not run on compute capability 7.5",
    )


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_order_names_backends_that_exist(capability: tuple[int, int]) -> None:
    for attention in ("dense", "mla"):
        order = selection_order(attention, capability)  # type: ignore[arg-type]
        assert order and set(order) <= backend_names()


def test_ranges_of_one_backend_do_not_overlap() -> None:
    for capability in CAPABILITIES:
        names = [
            row.name
            for row in every_selectable()
            if (row.min_cc or (0, 0)) <= capability < (row.below_cc or (99, 0))
        ]
        assert len(names) == len(set(names))
