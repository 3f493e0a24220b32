"""What is wrong in the public launchers, one test a defect: no recipe has it."""

from __future__ import annotations

from precision_plan.facts._load import table


def test_no_variable_without_a_reader(plan):
    dead = {row["name"] for row in table("env_dead_names")}
    assert "NCCL_TIMEOUT_MS" in dead
    for role, variables in plan.env.set_items():
        assert dead.isdisjoint(variables), role


def test_environment_values_are_not_empty(plan):
    for _, variables in plan.env.set_items():
        assert all(value != "" for value in variables.values())


def test_a_run_resumes_from_what_it_saves(plan):
    if plan.optimizer.lr is not None:
        assert plan.checkpoint.load == plan.checkpoint.save


def test_runs_of_one_model_do_not_share_checkpoints(recipe, plan):
    assert plan.checkpoint.save is None or (
        plan.checkpoint.save == f"checkpoints/{recipe}" or plan.optimizer.lr is None
    )


def test_no_reference_model_for_nothing(plan):
    extra = plan.launch.extra_args or {}
    assert "use-kl-loss" not in extra
    assert "kl-loss-coef" not in extra


def test_no_module_of_another_framework(plan):
    extra = plan.launch.extra_args or {}
    assert [key for key, value in extra.items() if "slime" in str(value)] == []


def test_no_framework_argument_that_has_a_field(plan):
    """An extra argument never repeats one that the plan has a place for."""
    fields = {
        name.replace("_", "-")
        for section in ("model", "parallel", "training", "optimizer", "rollout", "checkpoint")
        for name in type(getattr(plan, section)).model_fields
    }
    assert fields.isdisjoint(plan.launch.extra_args or {})


def test_sequence_parallel_only_with_tensor_parallel(plan):
    parallel = plan.parallel
    assert parallel.sequence_parallel is None or parallel.tensor_model_parallel_size > 1


def test_no_flash_attention_for_latent_attention(plan):
    if plan.model.multi_latent_attention:
        assert plan.training.attention_backend is None


def test_nan_check_stays_on(plan):
    assert plan.training.check_for_nan_in_loss_and_grad is not False


def test_qat_mirrors_the_rollout_checkpoint(plan):
    if plan.qat.int4_fake_qat:
        config = plan.checkpoint.quantization_config
        assert (plan.qat.int4_group_size, plan.qat.int4_symmetric) == (
            config.group_size,
            config.symmetric,
        )
        sizes = {row["model"]: row["group_size"] for row in table("int4_group_sizes")}
        assert plan.qat.int4_group_size == sizes[plan.model.name]


def test_gpus_divide_into_model_copies(plan):
    parallel = plan.parallel
    world = plan.hardware.nodes * plan.hardware.gpus_per_node
    dense = parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size
    assert world % (dense * parallel.context_parallel_size) == 0
    if parallel.expert_model_parallel_size:
        experts = parallel.expert_model_parallel_size * parallel.expert_tensor_parallel_size
        assert world % (experts * parallel.pipeline_model_parallel_size) == 0
        assert plan.model.num_experts % parallel.expert_model_parallel_size == 0


def test_layers_divide_into_pipeline_stages(plan):
    stages = plan.parallel.pipeline_model_parallel_size
    last = plan.parallel.decoder_last_pipeline_num_layers
    layers = plan.model.num_layers
    if last is None:
        assert layers % stages == 0
    else:
        assert stages > 1
        assert (layers - last) % (stages - 1) == 0


def test_rollout_shards_hold_whole_blocks(plan):
    """Experts split over an engine's GPUs leave whole quantization blocks or groups."""
    config = plan.checkpoint.quantization_config
    width = plan.model.moe_ffn_hidden_size or plan.model.ffn_hidden_size
    gpus = plan.launch.rollout_num_gpus_per_engine
    if config is None or gpus is None or plan.rollout.enable_expert_parallel:
        return
    block = config.weight_block_size[0] if config.weight_block_size else config.group_size or 32
    assert width % gpus == 0
    assert (width // gpus) % block == 0


def test_job_uses_the_declared_gpus(plan):
    if plan.launch.colocate:
        assert plan.launch.actor_num_nodes == plan.hardware.nodes
        assert plan.launch.actor_num_gpus_per_node == plan.hardware.gpus_per_node
