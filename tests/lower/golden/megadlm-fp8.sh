#!/usr/bin/env bash
# megadlm-fp8
# MegaDLM 1.7B, FP8 with FP8 moments
# fingerprint 6f81c638d080eb511aee8a83cf93ef680f0219fb036398d7ac2da636856a48cd
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
  --overlap-grad-reduce
  --overlap-param-gather
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --fp8-format e4m3
  --fp8-param-gather
  --fp8-amax-history-len 1024
  --fp8-amax-compute-algo max
  --transformer-impl transformer_engine
  --attention-backend flash
  --attention-softmax-in-fp32
  --seq-length 2048
  --micro-batch-size 4
  --global-batch-size 256
  --optimizer adam
  --use-distributed-optimizer
  --use-precision-aware-optimizer
  --main-params-dtype fp32
  --exp-avg-dtype fp8
  --exp-avg-sq-dtype fp8
  --lr 0.0002
  --min-lr 2e-5
  --lr-decay-style WSD
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  --load checkpoints/megadlm-fp8
  --save checkpoints/megadlm-fp8
  --save-interval 1000
  --model-running-mode difflm-noshift
  --base-model vanilla
  --mask-token 50277
  --attention-mask-type no_mask
  --train-data-path data/train
  --valid-data-path data/valid
  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model megatron/training/tokenizer/gptneox_tokenizer
  --train-iters 20000
  --eval-iters 100
  --lr-warmup-iters 2000
  --lr-wsd-decay-style exponential
  --lr-wsd-decay-iters 1000
)

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTHONUNBUFFERED=1

torchrun \
  --nnodes=1 \
  --nproc-per-node=8 \
  "$@" \
  pretrain_difflm.py \
  "${MEGATRON_ARGS[@]}"
