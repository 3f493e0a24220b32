#!/usr/bin/env bash
# my-mxfp8
# A model in MXFP8, with a title that is long enough to be wrapped on a line
# fingerprint 4b4e4582c4ec2b9548bda9bceab4ea36c20fb95cb70ce59f0939fd94abda3f86
set -euo pipefail

json_text() {  # a value as it stands between the quotes of a JSON string
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '%s' "$text"
}
: "${HF_TOKEN:?set HF_TOKEN}" "${REGISTRY:?set REGISTRY}"

MEGATRON_ARGS=(
  --fp8-format e4m3
  --fp8-recipe mxfp8
  --wandb-key "${WANDB_KEY:?set WANDB_KEY}"
)

VLLM_ARGS=(
  --vllm-kv-cache-dtype fp8_e4m3
)

RUNTIME_ENV_JSON='{
  "env_vars": {
    "HF_TOKEN": "'"$(json_text "$HF_TOKEN")"'",
    "NCCL_DEBUG": "INFO",
    "REGISTRY": "'"$(json_text "$REGISTRY")"'"
  }
}'
