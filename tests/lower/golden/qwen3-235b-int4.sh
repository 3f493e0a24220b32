#!/usr/bin/env bash
# qwen3-235b-int4
# Qwen3-235B-A22B, INT4 QAT and INT4 rollout
# fingerprint c4f1633ece23c80906f6686c5bd92f25792a7713f4e65e1162a20c4f4a387efd
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 94
  --hidden-size 4096
  --ffn-hidden-size 12288
  --num-attention-heads 64
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
  --moe-ffn-hidden-size 1536
  --moe-router-topk 8
  --moe-router-score-function softmax
  --moe-aux-loss-coeff 0.0
  --moe-token-drop-policy probs
  --tensor-model-parallel-size 4
  --sequence-parallel
  --pipeline-model-parallel-size 4
  --decoder-last-pipeline-num-layers 22
  --context-parallel-size 2
  --expert-model-parallel-size 16
  --expert-tensor-parallel-size 1
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --attention-backend flash
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
  --use-precision-aware-optimizer
  --optimizer-cpu-offload
  --overlap-cpu-optimizer-d2h-h2d
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
  --load checkpoints/qwen3-235b-int4
  --save checkpoints/qwen3-235b-int4
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Qwen3-235B-A22B-INT4
  --ref-load checkpoints/Qwen3-235B-A22B_torch_dist
  --actor-num-nodes 8
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 8
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 16384
  --train-env-vars '{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}'
  --prompt-data data/dapo-math-17k.jsonl
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --balance-data
  --rm-type deepscaler
  --num-rollout 300
  --rollout-batch-size 32
  --n-samples-per-prompt 8
  --num-steps-per-rollout 1
  --rollout-max-response-len 8192
  --rollout-temperature 0.8
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
  --use-tis
)

VLLM_ARGS=(
  --vllm-quantization compressed-tensors
  --vllm-enable-expert-parallel
  --vllm-gpu-memory-utilization 0.7
)

RUNTIME_ENV_JSON='{
  "env_vars": {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": "Megatron-LM",
    "OPEN_TRAINING_INT4_FAKE_QAT_FLAG": "1",
    "OPEN_TRAINING_INT4_GROUP_SIZE": "128"
  }
}'

ray job submit \
  --address=http://127.0.0.1:8265 \
  --runtime-env-json="$RUNTIME_ENV_JSON" \
  -- \
  python3 train.py \
  "${MEGATRON_ARGS[@]}" \
  "${VLLM_ARGS[@]}"
