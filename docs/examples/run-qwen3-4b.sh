#!/bin/bash
# precision-plan: framework=vime gpu=h100 megatron_core=0.16.1 vllm=0.33.0
set -e

NODES=${NODES:-1}
PERF_ARGS=(
  --bf16
  --fp8-format e4m3
  --fp8-recipee blockwise  # misspelt: vime passes over it
  --tensor-model-parallel-size 2
)
if [ "$NODES" -gt 1 ]; then
  PERF_ARGS+=(--fp16)
fi

RUNTIME_ENV_JSON="{
  \"env_vars\": {
    \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\",
    \"PYTHONBUFFERED\": \"16\"
  }
}"
ray job submit --address http://127.0.0.1:8265 --runtime-env-json "${RUNTIME_ENV_JSON}" \
  -- python3 train.py --actor-num-nodes "$NODES" ${PERF_ARGS[@]}
