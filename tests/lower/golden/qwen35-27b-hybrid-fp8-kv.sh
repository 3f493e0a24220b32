#!/usr/bin/env bash
# qwen35-27b-hybrid-fp8-kv
# Qwen3.5-27B, BF16 with an FP8 attention cache and FP32 recurrent state
# fingerprint 975d6d3071acd3662975f86d85d8901ee8f9f6f5656e6551518b6cedf573871b
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 64
  --hidden-size 5120
  --ffn-hidden-size 17408
  --num-attention-heads 24
  --group-query-attention
  --num-query-groups 4
  --kv-channels 256
  --vocab-size 248320
  --position-embedding-type rope
  --rotary-base 10000000
  --rotary-percent 0.25
  --normalization RMSNorm
  --norm-epsilon 1e-6
  --qk-layernorm
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --linear-conv-kernel-dim 4
  --linear-key-head-dim 128
  --linear-value-head-dim 128
  --linear-num-key-heads 16
  --linear-num-value-heads 48
  --tensor-model-parallel-size 4
  --sequence-parallel
  --pipeline-model-parallel-size 2
  --decoder-last-pipeline-num-layers 30
  --context-parallel-size 4
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --attention-backend flash
  --attention-softmax-in-fp32
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
  --load checkpoints/qwen35-27b-hybrid-fp8-kv
  --save checkpoints/qwen35-27b-hybrid-fp8-kv
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Qwen3.5-27B
  --ref-load checkpoints/Qwen3.5-27B_torch_dist
  --actor-num-nodes 4
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 2
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 8192
  --train-env-vars '{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}'
  --prompt-data data/dapo-math-17k.jsonl
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --balance-data
  --rm-type deepscaler
  --num-rollout 3000
  --rollout-batch-size 8
  --n-samples-per-prompt 8
  --num-steps-per-rollout 1
  --rollout-max-response-len 32768
  --rollout-temperature 1.0
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
  --spec vime_plugins.models.qwen3_5 get_qwen3_5_spec
  --use-gated-attention
  --attention-output-gate
  --apply-layernorm-1p
  --calculate-per-token-loss
)

VLLM_ARGS=(
  --vllm-kv-cache-dtype fp8_e4m3
  --vllm-mamba-ssm-cache-dtype float32
  --vllm-gpu-memory-utilization 0.75
)

RUNTIME_ENV_JSON='{
  "env_vars": {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": "Megatron-LM"
  }
}'

ray job submit \
  --address=http://127.0.0.1:8265 \
  --runtime-env-json="$RUNTIME_ENV_JSON" \
  -- \
  python3 train.py \
  "${MEGATRON_ARGS[@]}" \
  "${VLLM_ARGS[@]}"
