"""Cost of linting trees of launch scripts (budget: docs/architecture.md).

    python benchmarks/scripts.py [--count N] [--repeat N] [--profile]

A small script holds an array, a runtime environment and a submitted job; a realistic one has 150
lines, sources a model file, decides twice and starts Ray. Seconds are of one process over the
whole tree, start-up included; the ratio is to the start of a bare interpreter. The budget is that
of the small tree: exits 1 if it is missed. ``--profile`` lists the functions in which the time of
the realistic tree goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 2.0
"""Seconds for a tree of 300 small scripts."""

SMALL = r"""#!/bin/bash
set -ex
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --bf16
   --fp8-format e4m3
   --fp8-recipee blockwise
)
RUNTIME_ENV_JSON="{
  \"env_vars\": {
    \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\",
    \"NVTE_FP8_BLOCK_SCALING_FP32_SCALES\": \"1\"
  }
}"
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json="${RUNTIME_ENV_JSON}" \
   -- python3 train.py ${PERF_ARGS[@]}
"""

MODEL = r"""NLAYERS=48
FIRST_K_DENSE_REPLACE=0
arr=()
for ((i=0; i<NLAYERS; i++)); do
  if (( i < FIRST_K_DENSE_REPLACE )); then
    arr+=(0)
  else
    arr+=(1)
  fi
done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"
MODEL_ARGS=(
   --disable-bias-linear
   --qk-layernorm
   --group-query-attention
   --num-attention-heads 32
   --num-query-groups 4
   --kv-channels 128
   --num-layers 48
   --hidden-size 2048
   --ffn-hidden-size 6144
   --normalization RMSNorm
   --position-embedding-type rope
   --norm-epsilon 1e-6
   --rotary-percent 1.0
   --swiglu
   --untie-embeddings-and-output-weights
   --vocab-size 151936
   --rotary-base 1000000
   --moe-ffn-hidden-size 768
   --moe-router-score-function softmax
   --moe-token-dispatcher-type alltoall
   --moe-router-topk 8
   --moe-layer-freq $MOE_LAYER_FREQ
   --num-experts 128
   --moe-grouped-gemm
   --moe-token-drop-policy probs
   --moe-router-dtype fp32
   --moe-permute-fusion
   --moe-aux-loss-coeff 0
)
"""

REALISTIC = r"""#!/bin/bash
# precision-plan: framework=vime megatron_core=0.16.1 vllm=0.33.0 transformer_engine=2.10.0
# Run @N@: a mixture of experts, trained and served on one cluster.

# what an earlier run may have left behind
pkill -9 vllm
sleep 3
ray stop --force
pkill -9 ray
pkill -9 python
sleep 3

set -ex

# will prevent ray from buffering stdout/stderr
export PYTHONUNBUFFERED=16

NVLINK_COUNT=$(nvidia-smi topo -m 2>/dev/null | grep -o 'NV[0-9][0-9]*' | wc -l)
if [ "$NVLINK_COUNT" -gt 0 ]; then
    HAS_NVLINK=1
else
    HAS_NVLINK=0
fi
echo "HAS_NVLINK: $HAS_NVLINK (detected $NVLINK_COUNT NVLink references)"

SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/moe-30b.sh"

BASE_DIR=${BASE_DIR:-/root}
RUN_ID=run-@N@
NUM_GPUS=${NUM_GPUS:-8}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}

CKPT_ARGS=(
   --hf-checkpoint ${BASE_DIR}/moe-30b
   --ref-load ${BASE_DIR}/moe-30b_torch_dist
   --load ${BASE_DIR}/${RUN_ID}/
   --save ${BASE_DIR}/${RUN_ID}/
   --save-interval @INTERVAL@
)

ROLLOUT_ARGS=(
   --prompt-data ${BASE_DIR}/math.jsonl
   --input-key prompt
   --label-key label
   --apply-chat-template
   --rollout-shuffle
   --rm-type deepscaler
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --rollout-temperature 1
   --global-batch-size 256
   --balance-data
)

EVAL_ARGS=(
   --eval-interval 20
   --eval-prompt-data aime ${BASE_DIR}/aime.jsonl
   --n-samples-per-eval-prompt 16
   --eval-max-response-len 16384
   --eval-top-p 1
)

PERF_ARGS=(
   --tensor-model-parallel-size 4
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --expert-model-parallel-size 8
   --expert-tensor-parallel-size 1
   --recompute-granularity full
   --recompute-method uniform
   --recompute-num-layers 1
   # --micro-batch-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu @TOKENS@
)

GRPO_ARGS=(
   --advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --kl-loss-type low_var_kl
   --entropy-coef 0.00
   --eps-clip 0.2
   --eps-clip-high 0.28
)

OPTIMIZER_ARGS=(
   --optimizer adam
   --lr 1e-6
   --lr-decay-style constant
   --weight-decay 0.1
   --adam-beta1 0.9
   --adam-beta2 0.98
   --optimizer-cpu-offload
   --overlap-cpu-optimizer-d2h-h2d
   --use-precision-aware-optimizer
)

PRECISION_ARGS=(
   --bf16
   --transformer-impl transformer_engine
   --fp8-format e4m3
)
if [ "$GPU_TYPE" = "b200" ]; then
   PRECISION_ARGS+=(--fp8-recipe mxfp8)
   FP32_SCALES=0
else
   PRECISION_ARGS+=(--fp8-recipe blockwise)
   FP32_SCALES=1
fi

VLLM_ARGS=(
   --rollout-num-gpus-per-engine 8
   --vllm-gpu-memory-utilization 0.7
   --vllm-enable-expert-parallel
   --vllm-max-num-seqs 512
)

MISC_ARGS=(
   # default dropout in megatron is 0.1
   --attention-dropout 0.0
   --hidden-dropout 0.0
   --accumulate-allreduce-grads-in-fp32
   --attention-softmax-in-fp32
   --attention-backend flash
)

ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus ${NUM_GPUS} --disable-usage-stats

RUNTIME_ENV_JSON="{
  \"env_vars\": {
    \"PYTHONPATH\": \"/root/Megatron-LM/\",
    \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\",
    \"NVTE_FP8_BLOCK_SCALING_FP32_SCALES\": \"${FP32_SCALES}\",
    \"NCCL_NVLS_ENABLE\": \"${HAS_NVLINK}\"
  }
}"

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json="${RUNTIME_ENV_JSON}" \
   -- python3 train.py \
   --actor-num-nodes 1 \
   --actor-num-gpus-per-node 8 \
   --colocate \
   ${MODEL_ARGS[@]} \
   ${CKPT_ARGS[@]} \
   ${ROLLOUT_ARGS[@]} \
   ${OPTIMIZER_ARGS[@]} \
   ${GRPO_ARGS[@]} \
   ${PRECISION_ARGS[@]} \
   ${PERF_ARGS[@]} \
   ${EVAL_ARGS[@]} \
   ${VLLM_ARGS[@]} \
   ${MISC_ARGS[@]}
"""


def write_trees(folder: Path, count: int) -> tuple[Path, Path]:
    """A tree of small scripts and one of realistic ones, no two of which are alike."""
    small, realistic = folder / "small", folder / "realistic"
    (realistic / "models").mkdir(parents=True)
    small.mkdir()
    (realistic / "models" / "moe-30b.sh").write_text(MODEL)
    for number in range(count):
        (small / f"run-{number}.sh").write_text(SMALL)
        text = REALISTIC.replace("@N@", str(number)).replace("@INTERVAL@", str(20 + number))
        text = text.replace("@TOKENS@", str(1024 * (number % 30 + 1)))
        (realistic / f"run-{number}.sh").write_text(text)
    return small, realistic


def seconds(command: list[str], repeat: int) -> float:
    """Median wall seconds; a lint that finds something is no failure."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        taken.append(time.perf_counter() - start)
        if done.returncode not in (0, 1):
            sys.exit(f"{command} exited {done.returncode}: {done.stderr.decode()[-500:]}")
    return statistics.median(taken)


def checked_files(command: list[str]) -> int:
    """The number of files that a lint has looked at; a fast lint that skips them is none."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return len(json.loads(done.stdout)["summary"]["files"])


def profile(folder: Path) -> None:
    """Where the time goes, in this process."""
    from precision_plan.api import lint

    profiler = cProfile.Profile()
    profiler.runcall(lint, [folder])
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main() -> int:
    """Measure, print, compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    python, missed = sys.executable, False
    with tempfile.TemporaryDirectory() as name:
        small, realistic = write_trees(Path(name), args.count)
        if args.profile:
            profile(realistic)
            return 0
        bare = seconds([python, "-c", "pass"], max(args.repeat, 5))
        for label, folder in (("small", small), ("realistic", realistic)):
            command = [python, "-m", "precision_plan", "lint", str(folder), "--format", "json"]
            found = checked_files(command)
            if found != args.count:
                sys.exit(f"{label}: {found} of {args.count} scripts were checked")
            taken = seconds(command, args.repeat)
            verdict = ""
            if folder == small:
                missed = taken > BUDGET
                verdict = f"  (budget {BUDGET:.2f})  {'MISSED' if missed else 'ok'}"
            print(
                f"lint of {args.count} {label} scripts, seconds {taken:6.2f}  "
                f"({taken / bare:.0f} x bare interpreter){verdict}"
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
