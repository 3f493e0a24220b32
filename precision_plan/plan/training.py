"""Number formats of training, of the optimizer and of fake-quantized training (QAT)."""

from typing import Annotated

from pydantic import Field

from precision_plan.plan import dtypes as d
from precision_plan.plan.base import Section
from precision_plan.plan.sections import NonNegativeInt, PositiveInt, Strings
from precision_plan.plan.te_precision import TePrecisionConfig


class Training(Section):
    """Base format, FP8/FP4 recipe, GEMM, attention, router and layer exemptions."""

    # base format and accumulation
    bf16: bool | None = None
    fp16: bool | None = None
    accumulate_allreduce_grads_in_fp32: bool | None = None
    grad_reduce_in_bf16: bool | None = None
    gradient_accumulation_fusion: bool | None = None
    loss_scale: float | None = None
    initial_loss_scale: float | None = None
    min_loss_scale: float | None = None
    loss_scale_window: float | None = None
    hysteresis: int | None = None
    # FP8
    fp8_format: d.Fp8Format | None = None
    fp8_recipe: d.Fp8Recipe | None = None
    fp8_param_gather: bool | None = None
    fp8_margin: int | None = None
    fp8_interval: int | None = None
    fp8_amax_history_len: int | None = None
    fp8_amax_compute_algo: d.AmaxComputeAlgo | None = None
    fp8_wgrad: bool | None = None
    fp8_quantizer_factory: str | None = None
    fp8_output_proj: bool | None = None
    reuse_grad_buf_for_mxfp8_param_ag: bool | None = None
    # FP4
    fp4_format: d.Fp4Format | None = None
    fp4_recipe: d.Fp4Recipe | None = None
    fp4_param_gather: bool | None = None
    fp4_quantizer_factory: str | None = None
    # Transformer Engine: reached by environment variables only (NVTE_<UPPER CASE NAME>)
    fp8_block_scaling_fp32_scales: bool | None = None
    fp8_current_scaling_power_2_scales: bool | None = None
    backward_override: d.BackwardOverride | None = None
    nvfp4_disable_rht: bool | None = None
    nvfp4_disable_stochastic_rounding: bool | None = None
    nvfp4_disable_2d_quantization: bool | None = None
    nvfp4_row_scaled_activation: bool | None = None
    nvfp4_4over6: d.FourOverSixScope | None = None
    nvfp4_4over6_e4m3_use_256: d.FourOverSixScope | None = None
    nvfp4_4over6_err_mode: d.FourOverSixError | None = None
    nvfp4_4over6_err_use_fast_math: bool | None = None
    use_fast_math: bool | None = None
    dpa_fp8_recipe: d.DpaFp8Recipe | None = None
    dpa_fp8_format: d.DpaFp8Format | None = None
    fp8_dpa_bwd: bool | None = None
    # layers and modules that keep a higher precision
    first_last_layers_bf16: bool | None = None
    num_layers_at_start_in_bf16: int | None = None
    num_layers_at_end_in_bf16: int | None = None
    te_precision_config_file: str | None = None
    te_precision_config: TePrecisionConfig | None = None
    kitchen_config_file: str | None = None
    kitchen_recipe_number: int | None = None
    use_kitchen_attention: bool | None = None
    kitchen_attention_backend: d.KitchenAttention | None = None
    # single operations
    transformer_impl: d.TransformerImpl | None = None
    attention_backend: d.AttentionBackend | None = None
    use_flash_attn: bool | None = None
    attention_softmax_in_fp32: bool | None = None
    apply_query_key_layer_scaling: bool | None = None
    masked_softmax_fusion: bool | None = None
    fp32_residual_connection: bool | None = None
    fp16_lm_cross_entropy: bool | None = None
    cross_entropy_loss_fusion: bool | None = None
    cross_entropy_fusion_impl: d.CrossEntropyImpl | None = None
    output_logit_dtype: d.LogitDtype | None = None
    logits_save_dtype: d.StateDtype | None = None
    disable_bf16_reduced_precision_matmul: bool | None = None
    dsa_indexer_k_norm_fp32: bool | None = None
    enable_mhc_connections: bool | None = None
    mamba_training_ssm_states_dtype: d.SsmTrainingDtype | None = None
    qk_clip: bool | None = None
    log_max_attention_logit: bool | None = None
    delay_wgrad_compute: bool | None = None
    # mixture of experts
    moe_router_dtype: d.RouterDtype | None = None
    moe_grouped_gemm: bool | None = None
    moe_use_legacy_grouped_gemm: bool | None = None
    moe_single_grouped_weight: bool | None = None
    moe_single_grouped_bias: bool | None = None
    moe_token_dispatcher_type: d.TokenDispatcher | None = None
    moe_enable_deepep: bool | None = None
    moe_permute_fusion: bool | None = None
    moe_router_padding_for_fp8: bool | None = None
    moe_router_padding_for_quantization: bool | None = None
    moe_dispatch_fwd_dtype: d.MoeCommDtype | None = None
    moe_combine_bwd_dtype: d.MoeCommDtype | None = None
    # recomputation, offloading, graphs, determinism
    recompute_activations: bool | None = None
    recompute_granularity: d.RecomputeGranularity | None = None
    recompute_method: d.RecomputeMethod | None = None
    recompute_num_layers: PositiveInt | None = None
    recompute_modules: Strings | None = None
    fine_grained_activation_offloading: bool | None = None
    cpu_offloading_num_layers: NonNegativeInt | None = None
    enable_cuda_graph: bool | None = None
    external_cuda_graph: bool | None = None
    cuda_graph_impl: d.CudaGraphImpl | None = None
    cuda_graph_scope: Strings | None = None
    cuda_graph_modules: Strings | None = None
    te_rng_tracker: bool | None = None
    inference_rng_tracker: bool | None = None
    deterministic_mode: bool | None = None
    batch_invariant_mode: bool | None = None
    batch_invariant_backend: d.BatchInvariantBackend | None = None
    check_for_nan_in_loss_and_grad: bool | None = None
    check_for_large_grads: bool | None = None
    check_for_spiky_loss: bool | None = None
    log_loss_scale_to_tensorboard: bool | None = None
    use_legacy_models: bool | None = None
    use_cpu_initialization: bool | None = None
    enable_experimental: bool | None = None
    yaml_cfg: str | None = None
    # batch shape (row counts of the quantized GEMMs)
    seq_length: PositiveInt | None = None
    micro_batch_size: PositiveInt | None = None
    global_batch_size: PositiveInt | None = None
    max_tokens_per_gpu: PositiveInt | None = None
    use_dynamic_batch_size: bool | None = None


class OptimizerSection(Section):
    """Optimizer, master weights, moments, main gradients and offloading."""

    optimizer: d.Optimizer | None = None
    use_distributed_optimizer: bool | None = None
    num_distributed_optimizer_instances: PositiveInt | None = None
    use_precision_aware_optimizer: bool | None = None
    main_grads_dtype: d.MainGradsDtype | None = None
    main_params_dtype: d.MainParamsDtype | None = None
    exp_avg_dtype: d.AdamStateDtype | None = None
    exp_avg_sq_dtype: d.AdamStateDtype | None = None
    optimizer_cpu_offload: bool | None = None
    optimizer_offload_fraction: float | None = None
    use_torch_optimizer_for_cpu_offload: bool | None = None
    overlap_cpu_optimizer_d2h_h2d: bool | None = None
    pin_cpu_grads: bool | None = None
    pin_cpu_params: bool | None = None
    optimizer_cuda_graph: bool | None = None
    muon_fp32_matmul_prec: d.MatmulPrecision | None = None
    muon_scalar_optimizer: d.ScalarOptimizer | None = None
    lr: float | None = None
    min_lr: float | None = None
    lr_decay_style: str | None = None
    weight_decay: float | None = None
    adam_beta1: float | None = None
    adam_beta2: float | None = None
    adam_eps: float | None = None
    clip_grad: float | None = None


class Qat(Section):
    """Training-time fake quantization that mirrors the rollout's weight format.

    ``int4_*`` become ``OPEN_TRAINING_INT4_*``, ``nvfp4_fake_qat`` becomes
    ``OPEN_TRAINING_NVFP4_FAKE_QAT_FLAG``; the frameworks have no command-line flag for either.
    """

    int4_fake_qat: bool | None = None
    int4_group_size: Annotated[int, Field(gt=0)] | None = None
    int4_symmetric: bool | None = None
    nvfp4_fake_qat: bool | None = None
