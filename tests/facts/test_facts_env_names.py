"""Names of variables by package: whole, known to the rules, and never taken for slips."""

from __future__ import annotations

import random
import string

import pytest

from precision_plan.facts.env_names import env_name, listed_names, package_roles
from precision_plan.facts.env_vars import ROLES, dead_names, env_var, env_vars, is_secret
from precision_plan.facts.vllm_env_names import vllm_env_names
from precision_plan.plan import PrecisionPlan
from precision_plan.rules.base import Context
from precision_plan.rules.environment_names import misspelt

TYPES = {None, "bool", "int", "float", "str", "list", "json"}


def told(names: list[str]) -> list[str]:
    """The names that PP603 speaks of."""
    plan = PrecisionPlan.model_validate({"env": {"all": dict.fromkeys(names, "1")}})
    found = misspelt.check(Context(plan)) or ()
    return [finding.message.split()[2].rstrip(";") for finding in found]


def test_every_row_is_whole() -> None:
    names = listed_names()
    assert len(names) > 3000 and len(set(names)) == len(names)
    for name in names:
        row = env_name(name)
        assert row is not None and row.name == name
        assert row.source and row.type in TYPES
        assert set(package_roles()[row.package]) <= set(ROLES)


@pytest.mark.parametrize(
    ("name", "package", "kind", "default"),
    [
        ("NCCL_IB_DISABLE", "nccl", "int", "0"),
        ("NCCL_SOCKET_IFNAME", "nccl", None, None),
        ("SGLANG_ENABLE_JIT_DEEPGEMM", "sglang", "bool", "true"),
        ("RAY_LOG_TO_DRIVER", "ray", "bool", "true"),
        ("RAY_memory_usage_threshold", "ray", None, None),
        ("TORCHINDUCTOR_CACHE_DIR", "torch", None, None),
        ("HF_HUB_DISABLE_XET", "huggingface_hub", "bool", None),
        ("CUDA_LAUNCH_BLOCKING", "cuda", None, None),
        ("PYTHONFAULTHANDLER", "python", None, None),
    ],
)
def test_known_rows(name: str, package: str, kind: str | None, default: str | None) -> None:
    row = env_name(name)
    assert row is not None
    assert (row.package, row.type, row.default) == (package, kind, default)


def test_a_name_that_nothing_has() -> None:
    assert env_name("NCCL_TIMEOUT_MS") is None and env_name("PYTHONBUFFERED") is None


def test_no_listed_name_is_taken_for_a_slip() -> None:
    assert told([*listed_names(), *env_vars(), *vllm_env_names(), *dead_names()]) == []


def test_kubernetes_services_are_not_findings() -> None:
    draw = random.Random(20)
    noise = []
    for family in ("VLLM", "NCCL", "RAY", "SGLANG", "TORCH", "HF", "CUDA", "PYTORCH"):
        for _ in range(20):
            service = f"{family}_{''.join(draw.choices(string.ascii_uppercase, k=5))}"
            noise += [f"{service}_SERVICE_HOST", f"{service}_SERVICE_PORT"]
            noise += [f"{service}_SERVICE_PORT_HTTP", f"{service}_PORT_8000_TCP"]
            noise += [f"{service}_PORT_8000_TCP_{end}" for end in ("ADDR", "PORT", "PROTO")]
    assert told(noise) == []


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEBGU_SUBSYS", "NCCL_DEBUG_SUBSYS"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLINGS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("SGLANG_ENABLE_JIT_DEEP_GEMM", "SGLANG_ENABLE_JIT_DEEPGEMM"),
        ("HF_HUB_OFLINE", "HF_HUB_OFFLINE"),
    ],
)
def test_slips(slip: str, meant: str) -> None:
    plan = PrecisionPlan.model_validate({"env": {"all": {slip: "1"}}})
    (finding,) = misspelt.check(Context(plan)) or ()
    assert f"did you mean {meant}?" in finding.message


def test_only_names_of_tokens_and_keys_hide_their_values() -> None:
    hidden = {name for name in listed_names() if is_secret(name) and env_var(name) is None}
    assert "HF_TOKEN" in hidden
    assert all({"TOKEN", "KEY", "PASSWORD", "SECRET"} & set(name.split("_")) for name in hidden)
