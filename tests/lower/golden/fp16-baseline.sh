#!/usr/bin/env bash
# fp16-baseline
# Qwen3-4B, FP16 baseline
# fingerprint cf44416a21241ca9476786a034747a2f6ad69675e14996d750e92a6fb0db7937
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
  --max-position-embeddings 4096
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
  --fp16
  --accumulate-allreduce-grads-in-fp32
  --attention-softmax-in-fp32
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 32
  --no-check-for-nan-in-loss-and-grad
  --optimizer adam
  --use-distributed-optimizer
  --lr 1e-5
  --lr-decay-style constant
  --mock-data
  --tokenizer-type NullTokenizer
  --train-iters 100
  --eval-iters 0
  --log-interval 1
)

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTHONUNBUFFERED=1

torchrun \
  --nnodes=1 \
  --nproc-per-node=8 \
  "$@" \
  pretrain_gpt.py \
  "${MEGATRON_ARGS[@]}"
