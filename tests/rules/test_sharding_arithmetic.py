"""Legal parallel sizes by arithmetic and by cutting a layer column by column are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.rules.checkpoint_table import CheckpointLayers
from precision_plan.rules.sharding_arithmetic import (
    SIZES,
    Engine,
    Parallel,
    cuts_of,
    experts_of,
    legal_parallel_sizes,
)
from tests.checkpoints import described

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}


def layers_of(config: dict[str, Any], tensors: dict[str, str]) -> CheckpointLayers:
    return CheckpointLayers(described({"config": config, "tensors": tensors}))


def block_layer(name: str, rows: int, columns: int) -> dict[str, str]:
    return {
        f"{name}.weight": f"F8_E4M3 [{rows}, {columns}]",
        f"{name}.weight_scale_inv": f"F32 [{-(-rows // 128)}, {-(-columns // 128)}]",
    }


def awq_layer(name: str, outputs: int, inputs: int) -> dict[str, str]:
    return {
        f"{name}.qweight": f"I32 [{inputs}, {outputs // 8}]",
        f"{name}.qzeros": f"I32 [{inputs // 64}, {outputs // 8}]",
        f"{name}.scales": f"F16 [{inputs // 64}, {outputs}]",
    }


def whole(size: int, unit: int, ranks: int) -> bool:
    """No two ranks hold columns of one block, and each holds as many."""
    if size % ranks:
        return False
    part, owner = size // ranks, {}
    return all(
        owner.setdefault(column // unit, column // part) == column // part for column in range(size)
    )


@given(st.integers(1, 96))
def test_groups_of_a_row_parallel_layer(groups: int) -> None:
    layers = layers_of(
        {"quantization_config": AWQ},
        awq_layer("model.layers.0.mlp.down_proj", 64, groups * 64),
    )
    expected = tuple(size for size in SIZES if whole(groups * 64, 64, size))
    assert legal_parallel_sizes(cuts_of(layers, Engine()), Parallel()) == expected


@given(st.integers(1, 400).map(lambda sixteenths: sixteenths * 16))
def test_blocks_of_a_row_parallel_layer(columns: int) -> None:
    layers = layers_of(
        {"quantization_config": FP8}, block_layer("model.layers.0.mlp.down_proj", 256, columns)
    )
    # the engine asks more than that no block is shared: the last one may not be smaller
    expected = tuple(
        size
        for size in SIZES
        if size == 1 or (whole(columns, 128, size) and columns // size % 128 == 0)
    )
    assert legal_parallel_sizes(cuts_of(layers, Engine()), Parallel()) == expected


@given(
    st.integers(1, 64).map(lambda blocks: blocks * 32),
    st.sampled_from((1, 2, 4)),
    st.booleans(),
    st.booleans(),
)
def test_blocks_of_experts(size: int, data: int, refines: bool, together: bool) -> None:
    layers = layers_of(
        {"quantization_config": FP8},
        block_layer("model.layers.0.mlp.experts.0.down_proj", 256, size),
    )
    cuts = cuts_of(layers, Engine(refines=refines))
    units = (128, 64, 32) if refines else (128,)  # one rank alone is judged too
    ranks = {tensor: 1 if together else tensor * data for tensor in SIZES}
    expected = tuple(
        tensor
        for tensor, of in ranks.items()
        if size % of == 0 and any(size // of % unit == 0 for unit in units)
    )
    assert legal_parallel_sizes(cuts, Parallel(data, experts=together)) == expected


@given(st.integers(1, 64), st.integers(1, 64))
def test_key_value_heads_are_shared_or_copied(heads: int, ranks: int) -> None:
    layers = layers_of(
        {"num_key_value_heads": heads, "head_dim": 8},
        {"model.layers.0.self_attn.k_proj.weight": f"BF16 [{heads * 8}, 64]"},
    )
    parts = max(heads, ranks)  # of the query heads' groups: each head, or each copy of one
    shared = [sum(part * ranks // parts == rank for part in range(parts)) for rank in range(ranks)]
    copies = [sum(part * heads // parts == head for part in range(parts)) for head in range(heads)]
    even = len(set(shared)) == 1 == len(set(copies))
    found = legal_parallel_sizes(cuts_of(layers, Engine()), Parallel(), (ranks,))
    assert found == ((ranks,) if even else ())


@pytest.mark.parametrize(
    ("refines", "data", "together", "expected"),
    [
        (False, 1, False, (1, 2)),
        (False, 1, True, (1, 2, 4, 8, 16, 32)),
        (True, 1, False, (1, 2, 4, 8)),
        (True, 2, False, (1, 2, 4)),
    ],
)
def test_qwen3_30b_a3b_fp8(
    refines: bool, data: int, together: bool, expected: tuple[int, ...]
) -> None:
    config = {
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "quantization_config": FP8,
    }
    front = "model.layers.0"
    layers = layers_of(
        config,
        {
            **block_layer(f"{front}.self_attn.q_proj", 4096, 2048),
            **block_layer(f"{front}.self_attn.k_proj", 512, 2048),
            **block_layer(f"{front}.self_attn.o_proj", 2048, 4096),
            **block_layer(f"{front}.mlp.experts.{{0..7}}.gate_proj", 768, 2048),
            **block_layer(f"{front}.mlp.experts.{{0..7}}.down_proj", 2048, 768),
            "model.embed_tokens.weight": "BF16 [151936, 2048]",
        },
    )
    found = legal_parallel_sizes(
        cuts_of(layers, Engine(refines=refines)), Parallel(data, experts=together)
    )
    assert found == expected
    assert experts_of(layers) == 8
