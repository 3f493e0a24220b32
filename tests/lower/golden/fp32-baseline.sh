#!/usr/bin/env bash
# fp32-baseline
# Qwen3-4B, FP32 baseline
# fingerprint 5869f6d11962c4d1dd64bc33663c206f18469df67ed4fb910bafb8d7706fa388
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
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --no-gradient-accumulation-fusion
  --transformer-impl local
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 32
  --optimizer adam
  --use-distributed-optimizer
  --lr 1e-5
  --lr-decay-style constant
  --mock-data
  --tokenizer-type NullTokenizer
  --train-iters 100
  --eval-iters 0
  --log-interval 1
  --no-persist-layer-norm
)

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTHONUNBUFFERED=1

torchrun \
  --nnodes=1 \
  --nproc-per-node=8 \
  "$@" \
  pretrain_gpt.py \
  "${MEGATRON_ARGS[@]}"
