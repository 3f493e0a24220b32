#!/usr/bin/env bash
# megadlm-int8-inference
# MegaDLM 1.7B, INT8 calibration for inference
# fingerprint 8d8729b61cc08e5e5d6c3c638a5918ac20fb9001f2c51f5448dcb9852bbac70b
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
  --attention-backend unfused
  --seq-length 2048
  --micro-batch-size 8
  --bf16
  --export-quant-cfg int8
  --load checkpoints/ar-1.7b
  --save checkpoints/ar-1.7b-int8
  --save-interval 1
  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model megatron/training/tokenizer/gptneox_tokenizer
  --export-te-mcore-model
  --calib-dataset cnn_dailymail
  --calib-batch-size 8
  --calib-size 512
)

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTHONUNBUFFERED=1

torchrun \
  --nnodes=1 \
  --nproc-per-node=1 \
  "$@" \
  examples/export/ptq_and_trtllm_export/text_generation_ptq.py \
  "${MEGATRON_ARGS[@]}"
