"""The value sets of the plan's choice fields.

Each is the union over all versions that the catalogue knows, in the spelling of the program
that reads it; which of them exist at *one* version is a rule's business (``facts`` says).
A test holds these sets against ``facts`` so that neither can drift.
"""

from __future__ import annotations

from typing import Literal

# Megatron-LM -------------------------------------------------------------------------------
Fp8Format = Literal["e4m3", "hybrid"]
Fp8Recipe = Literal["tensorwise", "delayed", "mxfp8", "blockwise", "custom"]
Fp4Format = Literal["e2m1"]
Fp4Recipe = Literal["nvfp4", "custom"]
AmaxComputeAlgo = Literal["most_recent", "max"]
TransformerImpl = Literal["local", "transformer_engine", "inference_optimized"]
AttentionBackend = Literal["flash", "fused", "unfused", "local", "auto"]
MainGradsDtype = Literal["fp32", "bf16"]
MainParamsDtype = Literal["fp32", "fp16"]
AdamStateDtype = Literal["fp32", "fp16", "bf16", "fp8"]
FsdpDtype = Literal["fp32", "bf16", "fp16", "auto"]
RouterDtype = Literal["fp32", "fp64"]
MoeCommDtype = Literal["bf16", "mxfp8"]
TokenDispatcher = Literal["allgather", "alltoall", "flex", "alltoall_seq"]
Optimizer = Literal["adam", "sgd", "muon", "dist_muon", "lion", "soap", "adaptive_muon"]
MatmulPrecision = Literal["low", "medium", "high"]
ScalarOptimizer = Literal["adam", "lion"]
ShardingStrategy = Literal["no_shard", "optim", "optim_grads", "optim_grads_params"]
OuterShardingStrategy = Literal["no_shard", "optim"]
CudaGraphImpl = Literal["none", "local", "transformer_engine", "full_iteration"]
RecomputeGranularity = Literal["full", "selective"]
RecomputeMethod = Literal["uniform", "block"]
CrossEntropyImpl = Literal["native", "te"]
BatchInvariantBackend = Literal["te_native", "deepgemm", "triton"]
KitchenAttention = Literal["sdpa", "fa"]
StateDtype = Literal["bf16", "fp16", "fp32"]
SsmTrainingDtype = Literal["fp32", "bf16"]
LogitDtype = Literal["bf16", "fp32"]
CheckpointFormat = Literal["torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"]
CheckpointStrictness = Literal[
    "assume_ok_unexpected",
    "log_unexpected",
    "log_all",
    "raise_unexpected",
    "raise_all",
    "return_unexpected",
    "return_all",
    "ignore_all",
]
InferenceCudaGraphScope = Literal["none", "layer", "block"]
InferenceGroupedGemm = Literal["auto", "torch", "te", "flashinfer", "vllm"]
Normalization = Literal["LayerNorm", "RMSNorm"]

# ModelOpt export of Megatron and its forks ---------------------------------------------------
QuantCfg = Literal["int8", "int8_sq", "fp8", "int4_awq", "w4a8_awq", "int4"]
RealQuantCfg = Literal["fp8_real_quant", "fp8_blockwise_real_quant"]
KvCacheQuant = Literal["none", "fp8", "fp8_affine", "nvfp4", "nvfp4_affine", "nvfp4_rotate"]
InferenceDtype = Literal["fp32", "fp16", "bf16"]

# Transformer Engine --------------------------------------------------------------------------
BackwardOverride = Literal["high_precision", "dequantized"]
FourOverSixScope = Literal["none", "weights", "activations", "all"]
FourOverSixError = Literal["MAE", "MSE"]
DpaFp8Recipe = Literal["F16", "DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"]
DpaFp8Format = Literal["HYBRID", "E4M3", "E5M2"]

# vLLM ----------------------------------------------------------------------------------------
HfDtype = Literal["float32", "float16", "bfloat16"]
VllmDtype = Literal["auto", "half", "float16", "bfloat16", "float", "float32"]
KvCacheDtype = Literal[
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_inc",
    "fp8_ds_mla",
    "nvfp4",
    "nvfp4_4over6",
    "nvfp4_ds_mla",
    "int4_per_token_head",
    "int8_per_token_head",
    "fp8_per_token_head",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
    "octave_k3v4",
    "octave_k3v3",
    "octave_k3v3_compact",
    "ultraquant_4bit",
]
MambaCacheDtype = Literal["auto", "float32", "float16", "bfloat16"]
LoraDtype = Literal["auto", "float16", "bfloat16"]
HeadDtype = Literal["model", "float32", "float16", "bfloat16"]
LogprobsMode = Literal["raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"]
WeightTransferBackend = Literal["nccl", "ipc", "sparse_nccl", "sharded_rdt", "nccl_m2n"]
MmEncoderAttnDtype = Literal["fp8"]

# Frameworks, platforms, checkpoints ----------------------------------------------------------
Framework = Literal["megatron-lm", "vime", "slime", "miles", "megadlm", "vllm"]
Platform = Literal["cuda", "rocm"]
Maturity = Literal["stable", "beta", "experimental"]
Launcher = Literal["local", "ray"]
SyncMode = Literal["full", "delta"]
SyncTransport = Literal["nccl", "disk", "ipc"]
MegatronToHfMode = Literal["raw", "bridge"]
ActivationScheme = Literal["dynamic", "static"]
WeightFormat = Literal[
    "bf16", "fp16", "fp32", "fp8_block", "fp8_per_tensor", "mxfp8", "nvfp4", "int4", "int8"
]
