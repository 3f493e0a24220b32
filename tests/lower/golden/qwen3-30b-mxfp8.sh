#!/usr/bin/env bash
# qwen3-30b-mxfp8
# Qwen3-30B-A3B, MXFP8 training and MXFP8 rollout
# fingerprint c4c2f9a65514decadc11cdd3cf6d64f387854eb782e4098d4c469f3c3ff55fa2
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
  --tensor-model-parallel-size 4
  --sequence-parallel
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --fp8-format e4m3
  --fp8-recipe mxfp8
  --transformer-impl transformer_engine
  --attention-softmax-in-fp32
  --moe-router-dtype fp32
  --moe-grouped-gemm
  --moe-token-dispatcher-type alltoall
  --moe-permute-fusion
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
  --load checkpoints/qwen3-30b-mxfp8
  --save checkpoints/qwen3-30b-mxfp8
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Qwen3-30B-A3B-MXFP8
  --ref-load checkpoints/Qwen3-30B-A3B_torch_dist
  --actor-num-nodes 1
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 1
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 32768
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
  --vllm-quantization modelopt_mxfp8
  --vllm-gpu-memory-utilization 0.7
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
