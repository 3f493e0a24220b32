#!/usr/bin/env bash
# kimi-k2-thinking-int4
# Kimi-K2-Thinking, INT4 QAT and INT4 rollout
# fingerprint 850cc53d3472c3d5bb52817eb9ce594db1a8888495109548284441ecc41421bc
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 64
  --kv-channels 64
  --vocab-size 163840
  --position-embedding-type rope
  --rotary-base 50000
  --rotary-scaling-factor 64
  --no-rope-fusion
  --normalization RMSNorm
  --norm-epsilon 1e-5
  --qk-layernorm
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --multi-latent-attention
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --mscale 1.0
  --mscale-all-dim 1.0
  --num-experts 384
  --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048
  --moe-router-topk 8
  --moe-layer-freq '[0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]'
  --moe-router-score-function sigmoid
  --moe-router-pre-softmax
  --moe-router-enable-expert-bias
  --moe-router-bias-update-rate 0.0
  --moe-router-load-balancing-type seq_aux_loss
  --moe-router-topk-scaling-factor 2.827
  --moe-router-group-topk 1
  --moe-router-num-groups 1
  --moe-aux-loss-coeff 0.0
  --tensor-model-parallel-size 8
  --sequence-parallel
  --pipeline-model-parallel-size 8
  --decoder-last-pipeline-num-layers 5
  --context-parallel-size 4
  --expert-model-parallel-size 32
  --expert-tensor-parallel-size 1
  --bf16
  --accumulate-allreduce-grads-in-fp32
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
  --load checkpoints/kimi-k2-thinking-int4
  --save checkpoints/kimi-k2-thinking-int4
  --save-interval 20
  --ckpt-format torch_dist
  --hf-checkpoint checkpoints/Kimi-K2-Thinking
  --ref-load checkpoints/Kimi-K2-Thinking_torch_dist
  --actor-num-nodes 32
  --actor-num-gpus-per-node 8
  --rollout-num-gpus-per-engine 8
  --colocate
  --use-dynamic-batch-size
  --max-tokens-per-gpu 16384
  --update-weight-buffer-size 2147483648
  --train-env-vars '{"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}'
  --prompt-data data/dapo-math-17k.jsonl
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --balance-data
  --rm-type math
  --num-rollout 100
  --rollout-batch-size 128
  --n-samples-per-prompt 8
  --num-steps-per-rollout 4
  --rollout-max-response-len 16384
  --rollout-temperature 0.8
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.28
  --over-sampling-batch-size 256
  --dynamic-sampling-filter-path vime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std
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
    "OPEN_TRAINING_INT4_GROUP_SIZE": "32"
  }
}'

ray job submit \
  --address=http://127.0.0.1:8265 \
  --runtime-env-json="$RUNTIME_ENV_JSON" \
  -- \
  python3 train.py \
  "${MEGATRON_ARGS[@]}" \
  "${VLLM_ARGS[@]}"
