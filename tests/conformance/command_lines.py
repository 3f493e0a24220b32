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
from packaging.version import Version

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
_FP4 = Version("2.8")
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
    *("", ""),
    "--fp8-format e4m3",
    "--fp8-format hybrid",
    "--fp8-format hybrid --fp8-recipe tensorwise",
    "--fp8-format e4m3 --fp8-recipe mxfp8",
    "--fp8-format e4m3 --fp8-recipe blockwise",
    "--fp8-format e4m3 --fp8-recipe custom --fp8-quantizer-factory os.path.join",
    "--fp8-format e4m3 --fp8-recipe custom",
    "--fp4-format e2m1",
    "--fp4-format e2m1 --fp4-recipe custom --fp4-quantizer-factory os.path.join",
    "--fp4-format e2m1 --fp4-recipe custom",
)
_SCOPES = ("full", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full_iteration")
_MODULES = (
    *("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),
    "attention",
)
_OFFLOADED = (
    *("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear"),
    "linear_fc1",
)

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
}
"""Values of flags that have no list of choices."""

_CLASSES = (
    *("ModelParallelConfig", "TransformerConfig", "OptimizerConfig"),
    "DistributedDataParallelConfig",
)
"""Classes that the single flags of a line end in."""

_ELSEWHERE = {
    "te_precision_config_file",  # the class takes what is in the file
    "fp4_param",  # these four in a block, where they pass the argument checks
    "overlap_param_gather_with_optimizer_step",
    "cuda_graph_scope",
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


_EXPERTS = "--num-experts 8 --disable-bias-linear --expert-model-parallel-size 2"
_CAPACITY = "--moe-expert-capacity-factor 1.0"
_MTP = "--position-embedding-type rope"

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
        _words("", "", "--moe-enable-deepep", "--moe-permute-fusion"),
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
            _CAPACITY,
            f"{_CAPACITY} --moe-pad-expert-input-to-capacity",
        ),
    ),
    "expert overlap": _joined(
        _words("--overlap-moe-expert-parallel-comm"),
        _words("", "--delay-wgrad-compute", "--delay-wgrad-compute --moe-use-legacy-grouped-gemm"),
        _words(_EXPERTS, f"{_EXPERTS} --moe-token-dispatcher-type alltoall", ""),
        _words("", "", f"{_MTP} --mtp-num-layers 1", f"{_MTP} --mtp-num-layers 2"),
        _words("", "", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn"),
        _words(
            *("", "", "--recompute-method uniform", "--recompute-num-layers 1"),
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        ),
    ),
    "router padding": _joined(
        _words("--moe-router-padding-for-fp8", "--moe-router-padding-for-quantization"),
        _words("", "--num-experts 8 --disable-bias-linear"),
        _optional("--moe-token-dispatcher-type", "alltoall", "flex"),
    ),
    "graphs of experts": _joined(
        _words("--num-experts 8 --disable-bias-linear"),
        _words("--cuda-graph-impl local", "--cuda-graph-impl transformer_engine"),
        _several("--cuda-graph-scope", ("attn", "mlp", "moe", "moe_router", "moe_preprocess")),
        _words("", f"{_CAPACITY} --moe-pad-expert-input-to-capacity", _CAPACITY),
        _words("--moe-token-dispatcher-type alltoall", ""),
        _optional("--moe-router-padding-for-fp8"),
        _words("", "--recompute-granularity selective --recompute-modules moe mlp"),
        _words("", "--hidden-dropout 0", "--attention-dropout 0 --hidden-dropout 0"),
    ),
    "recomputation": _joined(
        _words(
            *("--recompute-granularity selective",) * 3,
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "--recompute-granularity full",
            "--recompute-activations",
        ),
        st.one_of(_words(""), _several("--recompute-modules", _MODULES)),
        _words(*("",) * 6, "--recompute-method block", "--recompute-num-layers 2"),
        _words("", "--num-experts 8 --disable-bias-linear --moe-grouped-gemm"),
    ),
    "recomputed norms": _joined(
        _words("--recompute-granularity selective --recompute-modules layernorm"),
        _words("--fp8-format hybrid", "--fp8-format e4m3 --fp8-recipe blockwise"),
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
        _words(
            *("--fp8-param-gather", "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", ""),
            "--fp4-format e2m1 --fp4-param-gather",
        ),
        _optional("--reuse-grad-buf-for-mxfp8-param-ag"),
        _words(
            *("--use-distributed-optimizer", "--use-distributed-optimizer", ""),
            "--use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce",
        ),
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
        _words("--use-nccl-ub", "--use-nccl-ub --use-megatron-fsdp --ckpt-format fsdp_dtensor"),
        _words("", "--use-distributed-optimizer --no-gradient-accumulation-fusion"),
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
        _words("", "", "--batch-invariant-mode"),
    ),
}


def _values(flag: MegatronFlag) -> SearchStrategy[Words]:
    if flag.action != "store":
        return st.sampled_from([(spelling,) for spelling in flag.flags])
    texts = tuple(map(str, flag.choices)) if flag.choices else _VALUES[flag.dest]
    return st.tuples(st.sampled_from(flag.flags), st.sampled_from(texts))


@functools.cache
def _single_flags() -> SearchStrategy[Words]:
    flags = [
        flag
        for dest, flag in flags_at(VERSION).items()
        if dest not in _ELSEWHERE and any(feed.partition(".")[0] in _CLASSES for feed in flag.feeds)
    ]
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
    for name in draw(st.lists(st.sampled_from(sorted(_BLOCKS)), max_size=3, unique=True)):
        parts.append(draw(_BLOCKS[name]))
    parts += draw(st.lists(_single_flags(), max_size=3))
    argv = sum(parts, ())
    versions = [te for te in _TE_VERSIONS if "--fp4-format" not in argv or Version(te) >= _FP4]
    return CommandLine(argv, draw(st.sampled_from(versions)), draw(_environment()))
