"""Command lines of Megatron 0.16.1 as hypothesis strategies.

A line is a small model, a number format and two kinds of additions: *blocks*, whose flags only
mean something together (experts, recomputation, graphs, ...), and single flags of precision with
any value that the parser accepts.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from precision_plan.facts.megatron import MegatronFlag, flags_at

VERSION = "0.16.1"
WORLD_SIZE = 16

Words = tuple[str, ...]


class CommandLine(NamedTuple):
    """What one process of a job sees: its arguments, its TE and its environment."""

    argv: Words
    transformer_engine: str
    env: dict[str, str]

    def row(self) -> dict[str, Any]:
        """The line as ``lint --jsonl`` takes it."""
        return {
            "id": "generated",
            "framework": "megatron-lm",
            "versions": {
                "megatron_core": VERSION,
                "transformer_engine": self.transformer_engine,
                "cuda": "12.9",
            },
            "gpu": "b200",
            "world_size": WORLD_SIZE,
            "env": self.env,
            "argv": list(self.argv),
        }


_MODEL = (
    "--num-layers 4 --hidden-size 128 --num-attention-heads 8 --seq-length 128"
    " --max-position-embeddings 128 --micro-batch-size 1 --lr 1e-4 --train-iters 10 --mock-data"
)
_TE_VERSIONS = (
    *("1.6.0", "1.10.0", "2.0.0", "2.1.0", "2.3.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0"),
    *("2.9.0", "2.10.0", "2.12.0", "2.14.1", "2.20.2"),
)
_ENV = {
    "CUDA_DEVICE_MAX_CONNECTIONS": ("1", "8", "32"),
    "NVTE_CPU_OFFLOAD_V1": ("0", "1"),
    "PYTORCH_CUDA_ALLOC_CONF": (
        "expandable_segments:True",
        "expandable_segments:False",
        "max_split_size_mb:512,expandable_segments:True",
    ),
    "NCCL_GRAPH_REGISTER": ("0", "1"),
}
_FORMATS = ("", "--bf16", "--bf16", "--bf16", "--bf16", "--fp16")
_QUANTIZED = (
    "",
    "--fp8-format e4m3",
    "--fp8-format hybrid",
    "--fp8-format hybrid --fp8-recipe tensorwise",
    "--fp8-format e4m3 --fp8-recipe mxfp8",
    "--fp8-format e4m3 --fp8-recipe blockwise",
    "--fp8-format e4m3 --fp8-recipe custom",
    "--fp4-format e2m1",
    "--fp4-format e2m1 --fp4-recipe custom",
)
_SCOPES = ("full", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full_iteration")
_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
_OFFLOADED = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm")

_VALUES: dict[str, tuple[str, ...]] = {
    "loss_scale": ("0", "1", "4096"),
    "initial_loss_scale": ("65536",),
    "min_loss_scale": ("1",),
    "loss_scale_window": ("500",),
    "hysteresis": ("1", "4"),
    "fp8_margin": ("0", "1"),
    "fp8_interval": ("1", "2"),
    "fp8_amax_history_len": ("1", "1024"),
    "fp8_quantizer_factory": ("os.path.join",),
    "fp4_quantizer_factory": ("os.path.join",),
    "num_layers_at_start_in_bf16": ("-1", "0", "1", "2", "3", "4", "5"),
    "num_layers_at_end_in_bf16": ("-1", "0", "1", "2", "3", "4", "5"),
    "optimizer_offload_fraction": ("0", "0.5", "1"),
    "num_distributed_optimizer_instances": ("1", "2"),
    "cpu_offloading_num_layers": ("0", "1", "3", "4"),
    "dist_ckpt_format_deprecated": ("torch_dist",),
}
"""Values of flags that have no list of choices."""

_ELSEWHERE = {
    "te_precision_config_file",  # reads a file
    "yaml_cfg",  # replaces the parser
    "export_quant_cfg",  # the other three: of the export scripts
    "export_real_quant_cfg",
    "export_kv_cache_quant",
    "cuda_graph_scope",  # in a block
    "recompute_granularity",
    "recompute_modules",
}


def _words(*alternatives: str) -> SearchStrategy[Words]:
    return st.sampled_from([tuple(text.split()) for text in alternatives])


def _several(flag: str, values: tuple[str, ...]) -> SearchStrategy[Words]:
    some = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    return st.one_of(st.just(()), some.map(lambda chosen: (flag, *chosen)))


def _joined(*parts: SearchStrategy[Words]) -> SearchStrategy[Words]:
    return st.tuples(*parts).map(lambda chosen: sum(chosen, ()))


def _optional(flag: str, *values: str) -> SearchStrategy[Words]:
    return _words("", *(f"{flag} {value}" for value in values or ("",)))


_BLOCKS: dict[str, SearchStrategy[Words]] = {
    "parallel": _joined(
        _words("", "--tensor-model-parallel-size 2", "--tensor-model-parallel-size 4"),
        _optional("--sequence-parallel"),
        _words(
            "",
            "--pipeline-model-parallel-size 2",
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
            "--pipeline-model-parallel-size 4",
        ),
        _words("", "", "--context-parallel-size 2"),
    ),
    "experts": _joined(
        _words("--num-experts 4", "--num-experts 8", "--num-experts 32", "--num-experts 1"),
        _words("", "--disable-bias-linear", "--disable-bias-linear"),
        _optional("--expert-model-parallel-size", "2", "4"),
        _optional("--expert-tensor-parallel-size", "1", "2"),
        _optional("--moe-token-dispatcher-type", "alltoall", "flex", "allgather"),
        _optional("--moe-grouped-gemm"),
        _words("", "", "--moe-layer-freq 2", "--moe-layer-freq [0,1,1,1]"),
        _words(
            "",
            "",
            "--moe-shared-expert-intermediate-size 64",
            "--moe-shared-expert-intermediate-size 64 --moe-shared-expert-overlap",
        ),
        _words(
            "",
            "",
            "--moe-expert-capacity-factor 1.0",
            "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity",
        ),
    ),
    "expert overlap": _joined(
        _words("--overlap-moe-expert-parallel-comm"),
        _optional("--delay-wgrad-compute"),
        _words("", "--num-experts 8 --expert-model-parallel-size 2 --disable-bias-linear"),
        _words("", "--moe-token-dispatcher-type alltoall"),
        _words("", "", "--mtp-num-layers 1", "--mtp-num-layers 2"),
    ),
    "router padding": _joined(
        _words("--moe-router-padding-for-fp8", "--moe-router-padding-for-quantization"),
        _words("", "--num-experts 8 --disable-bias-linear"),
        _optional("--moe-token-dispatcher-type", "alltoall", "flex"),
    ),
    "recomputation": _joined(
        _words(
            "--recompute-granularity selective",
            "--recompute-granularity selective",
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "--recompute-granularity full",
            "--recompute-activations",
        ),
        _several("--recompute-modules", _MODULES),
        _words("", "", "", "--recompute-method block", "--recompute-num-layers 2"),
    ),
    "graphs": _joined(
        _words(
            "--cuda-graph-impl local",
            "--cuda-graph-impl transformer_engine",
            "--cuda-graph-impl none",
            "--enable-cuda-graph",
            "--external-cuda-graph",
        ),
        _several("--cuda-graph-scope", _SCOPES),
        _words("", "--attention-dropout 0 --hidden-dropout 0", "--hidden-dropout 0"),
    ),
    "offloading": _joined(
        _words("--cpu-offloading-num-layers 2", "--fine-grained-activation-offloading"),
        _several("--offload-modules", _OFFLOADED),
    ),
    "first and last layers": _joined(
        _words("--first-last-layers-bf16"),
        _optional("--num-layers-at-start-in-bf16", *_VALUES["num_layers_at_start_in_bf16"]),
        _optional("--num-layers-at-end-in-bf16", *_VALUES["num_layers_at_end_in_bf16"]),
    ),
    "quantized parameters": _joined(
        _words("--fp8-param-gather", "--fp8-param-gather", "--fp4-param-gather"),
        _optional("--reuse-grad-buf-for-mxfp8-param-ag"),
        _words("", "--use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce"),
    ),
    "precision-aware optimizer": _joined(
        _words("--use-precision-aware-optimizer", "--use-precision-aware-optimizer", ""),
        _words("--use-distributed-optimizer", "--use-distributed-optimizer", ""),
        _words("", "", "--optimizer sgd", "--optimizer-cpu-offload", "--optimizer muon"),
        _optional("--main-grads-dtype", "bf16", "fp32"),
        _optional("--main-params-dtype", "fp16", "fp32"),
        _optional("--exp-avg-dtype", "bf16", "fp16", "fp8"),
        _optional("--exp-avg-sq-dtype", "bf16", "fp16", "fp8"),
    ),
    "user buffers": _joined(
        _words("--use-nccl-ub", "--use-nccl-ub --use-megatron-fsdp"),
        _words("", "--use-distributed-optimizer"),
        _words("", "--data-parallel-sharding-strategy optim_grads_params"),
    ),
    "latent attention": _joined(
        _words("--multi-latent-attention"),
        _words("", "--use-rotary-position-embeddings", "--position-embedding-type rope"),
    ),
    "other layers": _joined(
        _words("", "--swiglu"),
        _words("", "--normalization RMSNorm"),
        _words("", "--disable-bias-linear", "--disable-bias-linear --add-qkv-bias"),
        _words("", "--transformer-impl inference_optimized", "--transformer-impl local"),
        _words("", "", "--apply-layernorm-1p"),
        _words("", "--position-embedding-type rope"),
        _words("", "", "--batch-invariant-mode --attention-backend flash"),
    ),
}


def _values(flag: MegatronFlag) -> SearchStrategy[Words]:
    if flag.action != "store":
        return st.sampled_from([(spelling,) for spelling in flag.flags])
    texts = tuple(map(str, flag.choices)) if flag.choices else _VALUES[flag.dest]
    spelled = st.sampled_from(flag.flags)
    return st.tuples(spelled, st.sampled_from(texts))


@functools.cache
def _single_flags() -> SearchStrategy[Words]:
    flags = [flag for dest, flag in flags_at(VERSION).items() if dest not in _ELSEWHERE]
    return st.one_of([_values(flag) for flag in flags])


def _environment() -> SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(values) for name, values in _ENV.items()}
    )


@st.composite
def command_lines(draw: st.DrawFn) -> CommandLine:
    """Any command line of the kind that this module describes."""
    parts: list[Words] = [tuple(_MODEL.split())]
    parts.append(draw(_words(*_FORMATS)))
    parts.append(draw(_words(*_QUANTIZED)))
    for name in draw(st.lists(st.sampled_from(sorted(_BLOCKS)), max_size=4, unique=True)):
        parts.append(draw(_BLOCKS[name]))
    parts += draw(st.lists(_single_flags(), max_size=4))
    te_version = draw(st.sampled_from(_TE_VERSIONS))
    return CommandLine(sum(parts, ()), te_version, draw(_environment()))
