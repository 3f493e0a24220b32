"""Environment: what the job carries, what trainers alone get, what each process finally sees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from precision_plan.facts.frameworks import framework_env
from precision_plan.facts.torchrun_env import process_defaults
from precision_plan.lower import lower
from precision_plan.plan import Lowering
from tests.lower.plans import plan

DEFAULTS = {row.name: row.value for row in process_defaults()}
SCALES = "NVTE_FP8_BLOCK_SCALING_FP32_SCALES"
BLOCKWISE = {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"}


def _lower(framework: str | None = "vime", gpu: str | None = "h100", **sections: Any) -> Lowering:
    software = {"framework": framework, **sections.pop("software", {})}
    return lower(plan(software=software, hardware={"gpu": gpu}, **sections))


def _job(*args: Any, **sections: Any) -> dict[str, str]:
    return dict(_lower(*args, **sections).ray.runtime_env["env_vars"])


# Block scales ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("framework", "gpu", "te", "scales"),
    [
        ("vime", "h100", "2.10.0", "1"),
        ("slime", "h200", None, "1"),
        ("miles", "h100", "2.17.0", "1"),
        ("megatron-lm", "h100", "2.10.0", "0"),
        ("vime", "b200", "2.10.0", "0"),
        ("vime", "gb300", None, "0"),
        ("megatron-lm", "rtx5090", "2.20.2", "0"),
        ("vime", "b200", "2.8.0", None),  # the recipe itself is refused there
        ("vime", "a100", "2.10.0", None),
        ("vime", None, "2.10.0", None),
        ("vime", "mi300x", None, None),
    ],
)
def test_block_scales_follow_the_declared_target(
    framework: str, gpu: str | None, te: str | None, scales: str | None
) -> None:
    env = _job(framework, gpu, software={"transformer_engine": te}, training=BLOCKWISE)
    assert env.get(SCALES) == scales


def test_the_plan_decides_block_scales_where_it_speaks() -> None:
    given = {**BLOCKWISE, "fp8_block_scaling_fp32_scales": False}
    lowering = _lower(training=given)
    assert lowering.ray.runtime_env["env_vars"][SCALES] == "0"
    item = next(item for item in lowering.transformer_engine.items if item.name == SCALES)
    assert item.reason.field == "training.fp8_block_scaling_fp32_scales"
    env = _job(gpu="b200", training=BLOCKWISE, env={"all": {SCALES: "1"}})
    assert env[SCALES] == "1"  # refused by a rule, not repaired here


def test_other_recipes_get_no_block_scales() -> None:
    assert SCALES not in _job(training={"bf16": True})
    assert SCALES not in _job(training={"fp8_format": "e4m3", "fp8_recipe": "tensorwise"})


# Megatron's own demands -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("gpu", "parallel", "connections"),
    [
        ("h100", {"tensor_model_parallel_size": 2}, "1"),
        ("h100", {"context_parallel_size": 4}, "1"),
        ("h100", {"tensor_model_parallel_size": 1}, None),
        ("b200", {"tensor_model_parallel_size": 2}, None),
        (None, {"tensor_model_parallel_size": 2}, None),
        ("h100", {"tensor_model_parallel_size": 2, "use_megatron_fsdp": True}, None),
        ("h100", {"tensor_model_parallel_size": 2, "use_torch_fsdp2": True}, None),
        (
            "h100",
            {"tensor_model_parallel_size": 2, "overlap_moe_expert_parallel_comm": True},
            None,
        ),
    ],
)
def test_one_connection_where_megatron_demands_it(
    gpu: str | None, parallel: dict[str, Any], connections: str | None
) -> None:
    env = _job("megatron-lm", gpu, parallel=parallel)
    assert env.get("CUDA_DEVICE_MAX_CONNECTIONS") == connections


def test_a_variable_of_the_plan_is_not_replaced_by_a_demand() -> None:
    env = _job(
        parallel={"tensor_model_parallel_size": 2},
        env={"all": {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}},
    )
    assert env["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"


def test_single_valued_demands_of_attention_and_determinism() -> None:
    env = _job(
        training={"apply_query_key_layer_scaling": True, "deterministic_mode": True},
        software={"transformer_engine": "2.12.0"},
    )
    assert env["NVTE_APPLY_QK_LAYER_SCALING"] == "1"
    assert env["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] == "0"
    assert "NVTE_CPU_OFFLOAD_V1" not in env
    env = _job(
        training={"fine_grained_activation_offloading": True},
        software={"transformer_engine": "2.12.0"},
    )
    assert env["NVTE_CPU_OFFLOAD_V1"] == "1"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (None, "/opt/Megatron-LM"),
        ("/opt/plugins", "/opt/Megatron-LM:/opt/plugins"),
        ("/opt/plugins:/opt/Megatron-LM/", "/opt/plugins:/opt/Megatron-LM/"),
    ],
)
def test_megatron_is_on_the_path_once(given: str | None, path: str) -> None:
    env = {"all": {"PYTHONPATH": given}} if given else {}
    assert _job(launch={"megatron_path": "/opt/Megatron-LM"}, env=env)["PYTHONPATH"] == path


# Fake quantization and processes --------------------------------------------------------------
def test_int4_qat_is_a_job_variable() -> None:
    lowering = _lower(qat={"int4_fake_qat": True, "int4_group_size": 32})
    env = lowering.ray.runtime_env["env_vars"]
    assert env["OPEN_TRAINING_INT4_FAKE_QAT_FLAG"] == "1"
    assert env["OPEN_TRAINING_INT4_GROUP_SIZE"] == "32"
    assert lowering.ray.train_env_vars == DEFAULTS


def test_nvfp4_qat_is_for_trainers_only() -> None:
    lowering = _lower(
        gpu="b200",
        qat={"nvfp4_fake_qat": True},
        training={"use_fast_math": False, "nvfp4_4over6": "weights"},
    )
    trainer = {"OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG": "1", "NVTE_USE_FAST_MATH": "0"}
    assert lowering.ray.train_env_vars == {**DEFAULTS, **trainer}
    assert lowering.ray.runtime_env["env_vars"] == {"NVTE_NVFP4_4OVER6": "weights"}
    argv = lowering.megatron.argv
    assert json.loads(argv[argv.index("--train-env-vars") + 1]) == {**DEFAULTS, **trainer}
    roles = lowering.ray.roles
    assert trainer.items() <= roles["train_actor"].items()
    assert "OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG" not in roles["rollout_engine"]
    assert roles["converter"]["NVTE_USE_FAST_MATH"] == "0"  # the converter rounds alike


def test_a_typed_field_wins_over_the_trainers_variable() -> None:
    lowering = _lower(
        training={"nvfp4_disable_rht": True},
        env={"train_actor": {"NVTE_NVFP4_DISABLE_RHT": "0", "OTHER": "1"}},
    )
    trainer = {"NVTE_NVFP4_DISABLE_RHT": "1", "OTHER": "1"}
    assert lowering.ray.train_env_vars == {**DEFAULTS, **trainer}
    assert lowering.ray.roles["train_actor"]["NVTE_NVFP4_DISABLE_RHT"] == "1"


def test_trainers_get_what_torchrun_would_have_set() -> None:
    assert _lower("slime").ray.train_env_vars == DEFAULTS
    assert _lower("slime").ray.roles["train_actor"]["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in _lower("slime").ray.roles["rollout_engine"]
    own = _lower("slime", env={"train_actor": {"OMP_NUM_THREADS": "4"}}).ray
    assert own.train_env_vars["OMP_NUM_THREADS"] == "4"
    job = _lower("slime", env={"all": {"OMP_NUM_THREADS": "8"}}).ray
    assert "OMP_NUM_THREADS" not in job.train_env_vars
    assert job.roles["train_actor"]["OMP_NUM_THREADS"] == "8"


def test_plain_megatron_has_no_trainer_only_channel() -> None:
    lowering = _lower("megatron-lm", qat={"nvfp4_fake_qat": True}, env={"train_actor": {"A": "1"}})
    assert lowering.ray.train_env_vars == {}
    assert lowering.ray.runtime_env["env_vars"] == {
        "A": "1",
        "OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG": "1",
    }
    assert "--train-env-vars" not in lowering.megatron.argv


def test_precedence_in_a_train_actor() -> None:
    lowering = _lower(
        env={
            "all": {"NCCL_CUMEM_ENABLE": "1", "SHARED": "job", "TMS_INIT_ENABLE": "0"},
            "train_actor": {"SHARED": "trainer", "TMS_INIT_ENABLE": "0"},
        },
        launch={"colocate": True},
    )
    actor = lowering.ray.roles["train_actor"]
    assert actor["NCCL_CUMEM_ENABLE"] == "1"  # the driver's value beats the default
    assert actor["SHARED"] == "trainer"
    assert actor["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] == "1"
    assert actor["TMS_INIT_ENABLE"] == "1"  # the framework has the last word
    assert lowering.ray.roles["rollout_engine"]["SHARED"] == "job"
    assert lowering.ray.roles["driver"]["SHARED"] == "job"


def test_what_the_engine_sees() -> None:
    lowering = _lower(
        env={
            "all": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            "vllm_worker": {"VLLM_USE_DEEP_GEMM": "0"},
        },
        launch={"colocate": True},
    )
    engine = lowering.ray.roles["rollout_engine"]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in engine
    assert "PYTORCH_CUDA_ALLOC_CONF" in lowering.ray.roles["train_actor"]
    assert engine["VLLM_ALLOW_INSECURE_SERIALIZATION"] == "1"
    assert lowering.vllm.env == {
        "VLLM_USE_DEEP_GEMM": "0",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    }


def test_offloading_follows_colocation_unless_it_is_off() -> None:
    assert "TMS_INIT_ENABLE" not in _lower().ray.roles["train_actor"]
    apart = _lower(launch={"colocate": True, "offload_train": False})
    assert "TMS_INIT_ENABLE" not in apart.ray.roles["train_actor"]


def test_miles_default_scales_depend_on_the_gpu() -> None:
    assert _lower("miles", "h100").ray.roles["train_actor"][SCALES] == "1"
    assert _lower("miles", "b200").ray.roles["train_actor"][SCALES] == "0"
    assert SCALES not in _lower("miles", None).ray.roles["train_actor"]


def test_framework_rows_are_text_or_removals() -> None:
    for framework in ("vime", "slime", "miles"):
        for row in framework_env(framework):
            assert (row.value is None) == (row.how == "removed")


def test_working_dir_and_empty_plan() -> None:
    assert lower(plan()).ray.runtime_env == {"env_vars": {}}
    lowering = _lower(launch={"working_dir": "/srv/job"})
    assert lowering.ray.runtime_env["working_dir"] == "/srv/job"
    assert [item.name for item in lowering.ray.items] == ["working_dir", *DEFAULTS]


def test_secrets_do_not_reach_a_reason() -> None:
    lowering = _lower(env={"all": {"HF_TOKEN": "hf_verysecret"}})
    item = next(item for item in lowering.ray.items if item.name == "HF_TOKEN")
    assert item.value == "hf_verysecret"
    assert "hf_verysecret" not in item.reason.text
