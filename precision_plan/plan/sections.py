"""What is trained and on what: recipe, model, hardware, software, parallel."""

from typing import Annotated

from pydantic import Field

from precision_plan.plan import dtypes as d
from precision_plan.plan.base import Section

Strings = Annotated[tuple[str, ...], Field(strict=False)]
Ints = Annotated[tuple[int, ...], Field(strict=False)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]


class RecipeInfo(Section):
    """What a recipe says of itself; not part of the fingerprint."""

    name: str | None = None
    title: str | None = None
    source: Strings | None = None
    maturity: d.Maturity | None = None


class Model(Section):
    """Architecture facts, in Megatron's names (dests of its command-line flags)."""

    name: str | None = None
    hf_architecture: str | None = None
    hf_model_type: str | None = None
    hf_torch_dtype: d.HfDtype | None = None
    num_layers: PositiveInt | None = None
    mtp_num_layers: NonNegativeInt | None = None
    hidden_size: PositiveInt | None = None
    ffn_hidden_size: PositiveInt | None = None
    num_attention_heads: PositiveInt | None = None
    group_query_attention: bool | None = None
    num_query_groups: PositiveInt | None = None
    kv_channels: PositiveInt | None = None
    vocab_size: PositiveInt | None = None
    max_position_embeddings: PositiveInt | None = None
    position_embedding_type: str | None = None
    rotary_base: float | None = None
    rotary_percent: float | None = None
    rotary_scaling_factor: float | None = None
    use_rotary_position_embeddings: bool | None = None
    apply_rope_fusion: bool | None = None
    normalization: d.Normalization | None = None
    norm_epsilon: float | None = None
    qk_layernorm: bool | None = None
    swiglu: bool | None = None
    add_bias_linear: bool | None = None
    add_qkv_bias: bool | None = None
    untie_embeddings_and_output_weights: bool | None = None
    attention_dropout: float | None = None
    hidden_dropout: float | None = None
    # multi-latent attention
    multi_latent_attention: bool | None = None
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt | None = None
    qk_head_dim: PositiveInt | None = None
    qk_pos_emb_head_dim: PositiveInt | None = None
    v_head_dim: PositiveInt | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    # mixture of experts
    num_experts: PositiveInt | None = None
    moe_ffn_hidden_size: PositiveInt | None = None
    moe_shared_expert_intermediate_size: PositiveInt | None = None
    moe_router_topk: PositiveInt | None = None
    moe_layer_freq: PositiveInt | Ints | None = None
    moe_router_score_function: str | None = None
    moe_router_pre_softmax: bool | None = None
    moe_router_enable_expert_bias: bool | None = None
    moe_router_bias_update_rate: float | None = None
    moe_router_load_balancing_type: str | None = None
    moe_router_topk_scaling_factor: float | None = None
    moe_router_group_topk: PositiveInt | None = None
    moe_router_num_groups: PositiveInt | None = None
    moe_aux_loss_coeff: float | None = None
    moe_token_drop_policy: str | None = None
    # hybrid (attention plus recurrent state)
    linear_attention_layers: NonNegativeInt | None = None
    full_attention_layers: NonNegativeInt | None = None
    linear_conv_kernel_dim: PositiveInt | None = None
    linear_key_head_dim: PositiveInt | None = None
    linear_value_head_dim: PositiveInt | None = None
    linear_num_key_heads: PositiveInt | None = None
    linear_num_value_heads: PositiveInt | None = None
    hf_mamba_ssm_dtype: d.MambaCacheDtype | None = None


class Hardware(Section):
    """The declared target. Never read from the machine that runs the planner."""

    gpu: str | None = None
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d$")] | None = None
    platform: d.Platform | None = None
    nodes: PositiveInt | None = None
    gpus_per_node: PositiveInt | None = None
    memory_gib: PositiveInt | None = None
    host_memory_gib: PositiveInt | None = None


class Software(Section):
    """The framework and the package versions of the target; what is absent is unknown."""

    framework: d.Framework | None = None
    megatron_core: str | None = None
    transformer_engine: str | None = None
    torch: str | None = None
    cuda: str | None = None
    vllm: str | None = None
    ray: str | None = None
    flashinfer: str | None = None


class Parallel(Section):
    """Process groups, distributed data parallel and sharding."""

    tensor_model_parallel_size: PositiveInt | None = None
    sequence_parallel: bool | None = None
    pipeline_model_parallel_size: PositiveInt | None = None
    virtual_pipeline_model_parallel_size: PositiveInt | None = None
    num_layers_per_virtual_pipeline_stage: PositiveInt | None = None
    decoder_first_pipeline_num_layers: NonNegativeInt | None = None
    decoder_last_pipeline_num_layers: NonNegativeInt | None = None
    context_parallel_size: PositiveInt | None = None
    expert_model_parallel_size: PositiveInt | None = None
    expert_tensor_parallel_size: PositiveInt | None = None
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    overlap_param_gather_with_optimizer_step: bool | None = None
    align_param_gather: bool | None = None
    tp_comm_overlap: bool | None = None
    overlap_moe_expert_parallel_comm: bool | None = None
    ddp_average_in_collective: bool | None = None
    ddp_reduce_scatter_with_fp32_accumulation: bool | None = None
    ddp_param_name_patterns_for_fp32_local_accumulation: Strings | None = None
    gtp_remat_reduce_scatter_with_fp32_accumulation: bool | None = None
    tensor_parallel_num_weight_shards: PositiveInt | None = None
    expert_tensor_parallel_num_weight_shards: PositiveInt | None = None
    use_megatron_fsdp: bool | None = None
    use_custom_fsdp: bool | None = None
    megatron_fsdp_version: PositiveInt | None = None
    data_parallel_sharding_strategy: d.ShardingStrategy | None = None
    outer_dp_sharding_strategy: d.OuterShardingStrategy | None = None
    megatron_fsdp_main_params_dtype: d.FsdpDtype | None = None
    megatron_fsdp_main_grads_dtype: d.FsdpDtype | None = None
    megatron_fsdp_grad_comm_dtype: d.FsdpDtype | None = None
    megatron_fsdp_enable_fine_grained_param_gather: bool | None = None
    keep_fp8_transpose_cache: bool | None = None
    keep_fp8_transpose_cache_when_using_custom_fsdp: bool | None = None
    fsdp_double_buffer: bool | None = None
    fsdp_manual_registration: bool | None = None
    use_nccl_ub: bool | None = None
    init_model_with_meta_device: bool | None = None
    use_torch_fsdp2: bool | None = None
    torch_fsdp2_reshard_after_forward: bool | None = None
