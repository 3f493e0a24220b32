#!/usr/bin/env bash
# qwen3-4b-fp8
# Qwen3-4B, FP8 training and FP8 rollout
# fingerprint aaba64c06bcc3db668272b7f4cda3d25bfb41f1950767031716237a819133936
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 36
  --hidden-size 2560
  --ffn-hidden-size 9728
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151936
  --position-embedding-type rope
  --rotary-base 1000000
  --normalization RMSNorm
  --norm-epsilon 1e-6
  --qk-layernorm
  --swiglu
  --disable-bias-linear
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --tensor-model-parallel-size 2
  --sequence-parallel
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --fp8-format e4m3
  --fp8-recipe blockwise
  --transformer-impl transformer_engine
  --attention-backend flash
  --attention-softmax-in-fp32
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --optimizer adam
  --use-distributed-optimizer
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
  --load checkpoints/qwen3-4b-fp8
  --save checkpoints/qwen3-4b-fp8
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Qwen3-4B-FP8
  --ref-load checkpoints/Qwen3-4B_torch_dist
  --actor-num-nodes 1
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 2
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 9216
  --train-env-vars '{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}'
  --prompt-data data/dapo-math-17k.jsonl
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --balance-data
  --rm-type deepscaler
  --num-rollout 3000
  --rollout-batch-size 32
  --n-samples-per-prompt 8
  --num-steps-per-rollout 1
  --rollout-max-response-len 8192
  --rollout-temperature 1.0
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
)

VLLM_ARGS=(
  --vllm-quantization fp8
  --vllm-gpu-memory-utilization 0.7
)

RUNTIME_ENV_JSON='{
  "env_vars": {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": "Megatron-LM",
    "NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1",
    "VLLM_USE_DEEP_GEMM_E8M0": "0"
  }
}'

ray job submit \
  --address=http://127.0.0.1:8265 \
  --runtime-env-json="$RUNTIME_ENV_JSON" \
  -- \
  python3 train.py \
  "${MEGATRON_ARGS[@]}" \
  "${VLLM_ARGS[@]}"
