"""Many faults in one recipe, in any order and style: all are fixed, and the second run is idle."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.api import lint
from precision_plan.api.fixing import fix
from tests._hypothesis import examples

FAULTS: dict[str, tuple[str, ...]] = {
    "software": ("framework: slime", "megatron_core: 0.16.1", "vllm: 0.33.0"),
    "hardware": ('nodes: "2"', "gpu: h100", '"gpus-per-node": 8'),
    "training": (
        'BF16: "true"',
        "fp8-format: E4M3",
        "fp8_recipe: Blockwise",
        "fp8_interval: 2",
        "fp8_margin: 3",
        "initial_loss_scale: 65536.0",
        "enable_cuda_graph: true",
        "moe_token_dispatcher_type: allgather",
        "use_flash_attn: true",
        "attention_backend: flash",
    ),
    "optimizer": (
        'use_distributed_optimizer: "false"',
        "muon_fp32_matmul_prec: high",
        "optimizer_offload_fraction: 0.5",
        "optimizer_cpu_offload: true",
        "use_precision_aware_optimizer: true",
        "exp_avg_dtype: bf16",
    ),
    "parallel": ("sequence_parallel: true", "megatron_fsdp_main_params_dtype: bf16"),
    "env": (
        'all: {PYTHONBUFFERED: "1", VLLM_USE_V1: "1"}',
        'train_actor: {RANK: "0", NCCL_DEBUG: WARN}',
    ),
}
HEAD = "recipe: {title: a recipe, source: [here], maturity: stable}"
BEHIND = st.sampled_from(
    ["", "   # behind", "  # precision-plan: ignore[PP101] none", "  # precision-plan: nothing"]
)


@st.composite
def recipes(draw: st.DrawFn) -> str:
    sections = []
    for section, keys in FAULTS.items():
        chosen = draw(st.lists(st.sampled_from(keys), unique=True))
        if not chosen:
            continue
        if draw(st.booleans()) and section != "env":
            sections.append(f"{section}: {{{', '.join(chosen)}}}{draw(BEHIND)}")
            continue
        lines = [f"  {key}{draw(BEHIND)}" for key in chosen]
        above = draw(st.sampled_from(["", f"# about {section}\n", "\n"]))
        sections.append(above + "\n".join((f"{section}:", *lines)))
    return "\n".join((HEAD, *draw(st.permutations(sections)))) + "\n"


@examples(40)
@given(recipes())
def test_all_is_fixed_in_one_run(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path: Path = tmp_path_factory.mktemp("fixed") / "recipe.yaml"
    path.write_text(text)
    before = {found.id for found in lint([path]).diagnostics}
    fixes = fix([path])
    for change in fixes.changes:
        assert change.before == text
        path.write_text(change.after)
    after = lint([path]).diagnostics
    refused = [each.diagnostic for each in fixes.unfixed]
    assert [found for found in after if found.safe_fix is not None] == refused
    assert not before.intersection({"PP004", "PP021"}) or fixes.fixed
    assert not {found.id for found in after}.intersection({"PP002", "PP003", "PP004", "PP021"})
    assert fix([path]).changes == ()
