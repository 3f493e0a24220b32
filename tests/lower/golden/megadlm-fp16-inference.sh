#!/usr/bin/env bash
# megadlm-fp16-inference
# MegaDLM 1.7B, FP16 inference
# fingerprint 526945588e85bdce10f605175209822be0767fca70458b4d3f79892f7a0d26e9
set -euo pipefail

MEGATRON_ARGS=(
  --num-layers 28
  --hidden-size 2048
  --ffn-hidden-size 6144
  --num-attention-heads 16
  --vocab-size 50289
  --max-position-embeddings 2048
  --position-embedding-type rope
  --rotary-base 10000
  --normalization RMSNorm
  --norm-epsilon 1e-6
  --qk-layernorm
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --seq-length 2048
  --micro-batch-size 4
  --fp16
  --load checkpoints/ar-1.7b
  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model megatron/training/tokenizer/gptneox_tokenizer
)

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTHONUNBUFFERED=1

torchrun \
  --nnodes=1 \
  --nproc-per-node=1 \
  "$@" \
  tools/run_text_generation_server.py \
  "${MEGATRON_ARGS[@]}"
