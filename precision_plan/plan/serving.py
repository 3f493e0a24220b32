"""Sections of rollout, inference, checkpoints, weight synchronization, environment and launch."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from precision_plan.plan import dtypes as d
from precision_plan.plan.base import Section
from precision_plan.plan.sections import Ints, NonNegativeInt, PositiveInt, Strings


class Rollout(Section):
    """vLLM engine arguments, in vLLM's names (without the framework's ``vllm-`` prefix)."""

    dtype: d.VllmDtype | None = None
    quantization: str | None = None
    quantization_config: Mapping[str, Any] | None = None
    allow_deprecated_quantization: bool | None = None
    kv_cache_dtype: d.KvCacheDtype | None = None
    kv_cache_dtype_skip_layers: Strings | None = None
    calculate_kv_scales: bool | None = None
    mamba_cache_dtype: d.MambaCacheDtype | None = None
    mamba_ssm_cache_dtype: d.MambaCacheDtype | None = None
    enable_mamba_cache_stochastic_rounding: bool | None = None
    head_dtype: d.HeadDtype | None = None
    lora_dtype: d.LoraDtype | None = None
    mm_encoder_attn_dtype: d.MmEncoderAttnDtype | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    linear_backend: str | None = None
    all2all_backend: str | None = None
    logprobs_mode: d.LogprobsMode | None = None
    load_format: str | None = None
    weight_transfer_backend: d.WeightTransferBackend | None = None
    enable_sleep_mode: bool | None = None
    enable_expert_parallel: bool | None = None
    enable_eplb: bool | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: PositiveInt | None = None
    pipeline_parallel_size: PositiveInt | None = None
    data_parallel_size: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    cudagraph_capture_sizes: Ints | None = None
    # deployment facts that no argument carries
    nvfp4_inloop_patch: bool | None = None


class Inference(Section):
    """Megatron/ModelOpt inference and export quantization."""

    quantization: d.QuantCfg | None = None
    dtype: d.InferenceDtype | None = None
    export_quant_cfg: str | None = None
    export_real_quant_cfg: d.RealQuantCfg | None = None
    export_kv_cache_quant: d.KvCacheQuant | bool | None = None
    mamba_inference_conv_states_dtype: d.StateDtype | None = None
    mamba_inference_ssm_states_dtype: d.StateDtype | None = None
    inference_cuda_graph_scope: d.InferenceCudaGraphScope | None = None
    inference_grouped_gemm_backend: d.InferenceGroupedGemm | None = None
    inference_moe_disable_fused_quant_kernels: bool | None = None
    max_batch_size: PositiveInt | None = None


IGNORE_KEYS = ("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert")
"""Where ``quantization_config`` may list the layers that stay unquantized, by method."""


class QuantizationConfig(Section):
    """The ``quantization_config`` that the rollout checkpoint's ``config.json`` must hold.

    Field names are those of the file. ``fp8`` reads ``weight_block_size``,
    ``activation_scheme`` and ``modules_to_not_convert``; ``compressed-tensors`` reads
    ``bits``/``group_size``/``symmetric`` (written into ``config_groups.group_0.weights``) and
    ``ignore``; ``modelopt`` reads ``quant_algo``, ``group_size`` and ``ignore``, else
    ``exclude_modules``; ``mxfp8`` reads ``ignored_layers``.
    """

    quant_method: str | None = None
    quant_algo: str | None = None
    format: str | None = None
    fmt: str | None = None
    activation_scheme: d.ActivationScheme | None = None
    weight_block_size: Ints | None = None
    scale_fmt: str | None = None
    bits: PositiveInt | None = None
    group_size: PositiveInt | None = None
    symmetric: bool | None = None
    actorder: str | bool | None = None
    desc_act: bool | None = None
    zero_point: bool | None = None
    ignore: Strings | None = None
    exclude_modules: Strings | None = None
    ignored_layers: Strings | None = None
    modules_to_not_convert: Strings | None = None
    kv_cache_quant_algo: str | None = None
    scale_tensor: str | None = None


class Checkpoint(Section):
    """Training checkpoints (torch_dist) and the Hugging Face checkpoint of the rollout.

    ``quantization_config_key`` is where ``config.json`` keeps the quantization config, if not
    at the top level: ``text_config.quantization_config``.
    """

    hf_checkpoint: str | None = None
    hf_weight_format: d.WeightFormat | None = None
    quantization_config: QuantizationConfig | None = None
    quantization_config_key: str | None = None
    ref_load: str | None = None
    load: str | None = None
    save: str | None = None
    save_interval: PositiveInt | None = None
    ckpt_format: d.CheckpointFormat | None = None
    dist_ckpt_format: str | None = None
    use_dist_ckpt: bool | None = None
    dist_ckpt_strictness: d.CheckpointStrictness | None = None
    load_main_params_from_ckpt: bool | None = None
    no_load_optim: bool | None = None
    stream_ckpt_dequant: bool | None = None


class WeightSync(Section):
    """How updated weights reach the rollout engine, and in which format."""

    update_weight_mode: d.SyncMode | None = None
    update_weight_transport: d.SyncTransport | None = None
    update_weight_buffer_size: PositiveInt | None = None
    update_weight_disk_dir: str | None = None
    update_weights_interval: PositiveInt | None = None
    megatron_to_hf_mode: d.MegatronToHfMode | None = None
    weight_format: d.WeightFormat | None = None
    extra_high_precision_layers_hf: Strings | None = None
    extra_high_precision_layers_megatron: Strings | None = None


def _text(value: Any) -> Any:
    """Ray takes strings only: a number is written as its text; a boolean is ambiguous and stays."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


EnvValue = Annotated[str, BeforeValidator(_text)]
EnvVars = Mapping[str, EnvValue]


class Env(Section):
    """Environment variables by process role; ``all`` reaches every role through the job.

    Precedence in a train actor: ``all`` < ``train_actor``; ``train_actor`` is lowered to the
    framework's ``--train-env-vars`` and therefore never reaches the rollout engine. ``shell`` is
    what the shell that submits a job exports, and no process of the job sees; nothing is lowered
    from it.
    """

    all: EnvVars | None = None
    driver: EnvVars | None = None
    train_actor: EnvVars | None = None
    rollout_engine: EnvVars | None = None
    vllm_worker: EnvVars | None = None
    converter: EnvVars | None = None
    shell: EnvVars | None = None


class Launch(Section):
    """Entry point, placement and the framework arguments that precision does not touch."""

    entrypoint: str | None = None
    ray_address: str | None = None
    working_dir: str | None = None
    megatron_path: str | None = None
    colocate: bool | None = None
    offload_train: bool | None = None
    offload_rollout: bool | None = None
    actor_num_nodes: PositiveInt | None = None
    actor_num_gpus_per_node: PositiveInt | None = None
    rollout_num_gpus: NonNegativeInt | None = None
    rollout_num_gpus_per_engine: PositiveInt | None = None
    model_name: str | None = None
    extra_args: Mapping[str, Any] | None = None
