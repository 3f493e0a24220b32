"""Environment variables: readers, roles, moments, dead names, secrets."""

import pytest

from precision_plan.facts.env_vars import ROLES, dead_names, env_var, env_vars, is_secret
from precision_plan.plan.environment import FIELD_VARIABLES
from precision_plan.plan.serving import Env


def test_roles_are_those_of_the_plan() -> None:
    assert set(ROLES) == set(Env.model_fields) - {"all", "shell"}
    for variable in env_vars().values():
        assert variable.roles and set(variable.roles) <= set(ROLES), variable.name
        assert variable.read in {"import", "call", "start"}
        assert variable.read_by and variable.meaning, variable.name


def test_a_default_is_an_accepted_value() -> None:
    for variable in env_vars().values():
        if variable.default is not None and variable.values is not None:
            assert variable.default.split(",")[0] in {*variable.values, "auto"}, variable.name


def test_variables_of_plan_fields_are_read_by_the_train_actor() -> None:
    for name in FIELD_VARIABLES.values():
        found = env_var(name)
        assert found is not None and "train_actor" in found.roles, name


def test_block_scales_variable() -> None:
    variable = env_vars()["NVTE_FP8_BLOCK_SCALING_FP32_SCALES"]
    assert variable.read == "import"
    assert variable.accepts("1") and not variable.accepts("true")
    assert variable.exists_in("transformer_engine", "2.2.0") is False
    assert variable.exists_in("transformer_engine", "2.3.0") is True
    assert variable.exists_in("transformer_engine", None) is None


def test_int4_variables_have_no_default_group_of_the_checkpoint() -> None:
    assert env_vars()["OPEN_TRAINING_INT4_GROUP_SIZE"].default == "128"
    assert env_vars()["OPEN_TRAINING_INT4_FAKE_QAT_FLAG"].read == "call"


@pytest.mark.parametrize(
    ("name", "status", "use"),
    [
        ("PYTHONBUFFERED", "inert", "PYTHONUNBUFFERED"),
        ("NCCL_TIMEOUT_MS", "inert", "--distributed-timeout-minutes"),
        ("VLLM_ATTENTION_BACKEND", "removed", "rollout.attention_backend (--attention-backend)"),
        ("VLLM_USE_FLASHINFER_MOE_FP8", "removed", "rollout.moe_backend (--moe-backend)"),
    ],
)
def test_dead_names(name: str, status: str, use: str) -> None:
    assert (dead_names()[name].status, dead_names()[name].use) == (status, use)


def test_a_removed_name_is_dead_from_its_version_on() -> None:
    row = dead_names()["VLLM_ATTENTION_BACKEND"]
    assert "0.12.0" not in row.versions
    assert "0.17.1" in row.versions and "0.33.0" in row.versions


def test_a_name_is_alive_or_dead() -> None:
    alive_once = {"NVTE_FUSED_ATTN_BACKEND", "NVTE_FUSED_ATTN_FORCE_WORKSPACE_OPT"}
    assert set(dead_names()) & set(env_vars()) == alive_once
    for name in alive_once:
        last = env_vars()[name].versions["transformer_engine"].until
        assert last is not None and last not in dead_names()[name].versions


SECRETS = (
    "HF_TOKEN",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASSWORD",
    "password1",
    "VLLM_API_KEY",
    "GITHUB-TOKEN",
    "SSH_KEY",
)
PLAIN = (
    "NVTE_FLASH_ATTN",
    "MAX_TOKENS",
    "MAX_TOKEN_LEN",
    "PER_TOKEN_ACTIVATION",
    "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION",
    "RAY_AUTH_MODE",
    "TOKENIZERS_PARALLELISM",
    "MONKEY",
    "PWD",
)


@pytest.mark.parametrize("name", SECRETS)
def test_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", PLAIN)
def test_no_secrets(name: str) -> None:
    assert not is_secret(name)
