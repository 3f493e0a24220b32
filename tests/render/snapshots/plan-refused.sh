#!/usr/bin/env bash
# my-mxfp8
# A model in MXFP8, with a title that is long enough to be wrapped on a line
# fingerprint 87333cd085161492c93674294caf9b8559417e337f416bcab36af322a37c5e2e
set -euo pipefail

# error[PP204] training.fp8_recipe = mxfp8 needs compute capability 10.0 up to 12.0; the target h200 has 9.0
printf '%s\n' 'my-mxfp8: this plan has errors and is not launched' >&2
exit 1

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
