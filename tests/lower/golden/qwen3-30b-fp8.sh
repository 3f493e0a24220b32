#!/usr/bin/env bash
# qwen3-30b-fp8
# Qwen3-30B-A3B, FP8 training and FP8 rollout
# fingerprint 9de469ccb6b04eee97c614b6a3319a5347fe764ed420b25582a58c92b4d28ee9
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 48
  --hidden-size 2048
  --ffn-hidden-size 6144
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 4
  --kv-channels 128
  --vocab-size 151936
  --position-embedding-type rope
  --rotary-base 1000000
  --normalization RMSNorm
  --norm-epsilon 1e-6
  --qk-layernorm
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --num-experts 128
  --moe-ffn-hidden-size 768
  --moe-router-topk 8
  --moe-router-score-function softmax
  --moe-aux-loss-coeff 0.0
  --moe-token-drop-policy probs
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 4
  --context-parallel-size 1
  --expert-model-parallel-size 4
  --expert-tensor-parallel-size 1
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --fp8-format e4m3
  --fp8-recipe blockwise
  --transformer-impl transformer_engine
  --attention-backend flash
  --attention-softmax-in-fp32
  --moe-router-dtype fp32
  --moe-grouped-gemm
  --moe-token-dispatcher-type flex
  --moe-enable-deepep
  --moe-permute-fusion
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --optimizer adam
  --use-distributed-optimizer
  --use-precision-aware-optimizer
  --optimizer-cpu-offload
  --overlap-cpu-optimizer-d2h-h2d
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
  --load checkpoints/qwen3-30b-fp8
  --save checkpoints/qwen3-30b-fp8
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Qwen3-30B-A3B-FP8
  --ref-load checkpoints/Qwen3-30B-A3B_torch_dist
  --actor-num-nodes 2
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 8
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 20480
  --train-env-vars '{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}'
  --prompt-data data/dapo-math-17k.jsonl
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --balance-data
  --rm-type math
  --num-rollout 200
  --rollout-batch-size 16
  --n-samples-per-prompt 8
  --num-steps-per-rollout 1
  --rollout-max-response-len 8192
  --rollout-temperature 1.0
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
  --use-tis
)

VLLM_ARGS=(
  --vllm-quantization fp8
  --vllm-enable-expert-parallel
  --vllm-gpu-memory-utilization 0.6
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
