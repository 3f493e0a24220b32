"""What ``explain`` says of engine arguments whose values differ by version, GPU and backend."""

from __future__ import annotations

import pytest

from precision_plan.__main__ import main


def said(capsys: pytest.CaptureFixture[str], subject: str) -> str:
    assert main(["explain", subject]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "subject", ["kv_cache_dtype", "rollout.kv_cache_dtype", "--kv-cache-dtype"]
)
def test_kv_cache_dtype(capsys: pytest.CaptureFixture[str], subject: str) -> None:
    text = said(capsys, subject)
    assert "nvfp4_4over6 0.28.0 and later; 4 bits; on cuda" in text
    assert "FLASH_ATTN (9.0 to below 11.0)" in text
    assert "though its layers are built by TRITON_ATTN from 8.9" in text
    assert "auto becomes fp8_e4m3 for GlmMoeDsaForCausalLM from 10.0 below 11.0" in text
    assert "kv_cache_quant_algo" in text
    assert "vime passes it on as --vllm-kv-cache-dtype" in text
    assert "PP425" in text


def test_attention_backend(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "attention_backend")
    assert "tried in the order FLASHINFER, FLASH_ATTN, TRITON_ATTN" in text


def test_recurrent_state(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "mamba_ssm_cache_dtype")
    assert "mamba_ssm_cache_dtype of config.json, else float32 for NemotronHForCausalLM" in text
