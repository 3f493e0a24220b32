"""Commands of scripts as plans: which are launches, what they set, and what is left over."""

from __future__ import annotations

import pytest

from precision_plan.importers.declarations import Declared
from precision_plan.importers.job_plan import job_of
from precision_plan.importers.jobs import Command, ImportedJob
from precision_plan.importers.texts import Piece, Source, Text, literal
from precision_plan.plan.unknown import NotKnown
from precision_plan.rules.alternatives import check_alternatives


def words(line: str) -> tuple[Text, ...]:
    """Words of a line; one that begins with ``$`` is not known, and may be several."""
    source = Source("run.sh", line.encode())
    found, at = [], 0
    for word in line.split(" "):
        if "$" in word:
            before, dollar, rest = word.partition("$")
            pieces = [Piece(before, source, at)] if before else []
            unknown = Piece(dollar + rest, source, at + len(before), False, split=True, name=rest)
            found.append(Text((*pieces, unknown)))
        elif word:
            found.append(literal(word, source, at))
        at += len(word) + 1
    return tuple(found)


def variables(**values: str) -> dict[str, Text]:
    return {
        name: literal(value, Source("env.sh", value.encode())) for name, value in values.items()
    }


def job(line: str, ray_env: dict[str, Text] | None = None, **exports: str) -> ImportedJob:
    found = job_of(Command(words(line), variables(**exports), ray_env))
    assert found is not None
    assert len(found.uses) == len(found.command.words)
    return found


MEGATRON = "python pretrain_gpt.py --bf16 --micro-batch-size 1"
RUN = "python -m torch.distributed.run"


@pytest.mark.parametrize(
    ("line", "framework", "entry"),
    [
        (MEGATRON, "megatron-lm", "pretrain_gpt.py"),
        (f"nohup env A=1 {MEGATRON}", "megatron-lm", "pretrain_gpt.py"),
        (f"srun -N 2 --ntasks=4 numactl -N 0 {MEGATRON}", "megatron-lm", "pretrain_gpt.py"),
        (f"timeout 10 /usr/bin/{MEGATRON}", "megatron-lm", "pretrain_gpt.py"),
        ("python3.11 -u -m pretrain_gpt --bf16", "megatron-lm", "pretrain_gpt"),
        ("torchrun --nproc-per-node 8 x/pretrain_gpt.py", "megatron-lm", "x/pretrain_gpt.py"),
        ("torchrun $ARGS pretrain_gpt.py --bf16", "megatron-lm", "pretrain_gpt.py"),
        (f"{RUN} --nnodes=2 pretrain_gpt.py", "megatron-lm", "pretrain_gpt.py"),
        ("python -m torch.distributed.launch pretrain_difflm.py", "megadlm", "pretrain_difflm.py"),
        ("$PYTHON pretrain_gpt.py --bf16", "megatron-lm", "pretrain_gpt.py"),
        ("ray job submit --address=x --no-wait -- python3 train.py --vllm-x 1", "vime", "train.py"),
        ("ray job submit --address x -- python slime/train.py --actor-num-nodes 1", "slime", None),
        ("ray job submit -- python3 train_async.py --rollout-num-gpus 8", None, "train_async.py"),
        ("ray job submit -- python3 train.py --sglang-x 8", None, "train.py"),
        ("docker run -e A=1 --gpus all i python pretrain_gpt.py", "megatron-lm", "pretrain_gpt.py"),
    ],
)
def test_launches(line: str, framework: str | None, entry: str | None) -> None:
    found = job(line)
    assert (found.candidates[0] if len(found.candidates) == 1 else None) == framework
    assert found.plan.launch.entrypoint == (entry or "slime/train.py")


@pytest.mark.parametrize(
    "line",
    [
        "echo python train.py",
        "python train.py --lr 1e-3 --batch-size 32",
        "python -c pass",
        "python tools/convert_hf_to_torch_dist.py --hf-checkpoint x",
        "python -m pip install torch",
        "ray start --head",
        "ray job submit",
        "vllm bench serve",
        "pip install vllm",
        "$CMD --bf16",
        "torchrun --nproc-per-node 8",
        "python3",
    ],
)
def test_other_commands_are_none(line: str) -> None:
    assert job_of(Command(words(line))) is None


def test_two_engines_leave_two_frameworks() -> None:
    found = job("python3 train.py --sglang-kv-cache-dtype fp8_e4m3 --bf16")
    assert found.candidates == ("slime", "miles")
    assert "software.framework" in found.unknown
    assert [plan.software.framework for plan in found.alternatives()] == ["slime", "miles"]


def test_arguments_without_a_field_are_kept_as_flags_that_say_the_same() -> None:
    rl = "python slime/train.py --rollout-batch-size 4"
    found = job(f"{rl} --disable-rewards-normalization --top_p=0.9 --my_own 3 -x 4")
    assert found.plan.launch.extra_args == {
        "rollout_batch_size": 4,
        "disable-rewards-normalization": True,  # to store false is to give the flag
        "--top_p": "0.9",  # not the same as --top-p
        "--my_own": "3",
        "-x": "4",
    }


def test_values_and_positions() -> None:
    found = job(
        f"{MEGATRON} --fp8-format e4m3 --num-layers 4 --lr $LR --load $BASE/x --log-interval 3"
    )
    plan = found.plan
    assert plan.training.bf16 is True and plan.training.fp8_format == "e4m3"
    assert plan.model.num_layers == 4
    assert plan.checkpoint.load == "$BASE/x"
    assert plan.launch.extra_args == {"log_interval": 3}
    assert found.unknown == ("optimizer.lr",)
    assert str(plan.origin("training.fp8_format")) == f"run.sh:1:{len(MEGATRON) + 2}"
    assert not found.diagnostics and not found.leftovers


@pytest.mark.parametrize(
    ("tail", "findings"),
    [
        ("--fp8-recipee x", [("PP901", 0)]),
        ("--fp8-format e9m9", [("PP902", 0)]),
        ("--num-layers", [("PP903", 0)]),
        ("--bf16 3", [("PP904", 7)]),
        ("--lr 1 --lr 2", [("PP906", 7)]),
        ("--fp8-format $X", []),
        ("$X 3 4", []),
        ("$X --bf16 3", [("PP904", 10)]),
    ],
)
def test_findings_stand_at_their_word(tail: str, findings: list[tuple[str, int]]) -> None:
    found = job(f"{MEGATRON} {tail}")
    start = len(MEGATRON) + 2
    assert [(each.id, each.origin.column - start) for each in found.diagnostics] == findings


@pytest.mark.parametrize(
    ("framework", "flag", "id"),
    [
        (None, "--fp8-recipee", "PP911"),
        ("slime", "--fp8-recipee", "PP911"),
        ("vime", "--vllm-kv-cache-dtyp", "PP911"),
        ("miles", "--fp8-recipee", "PP911"),
        ("slime", "--num-rollouts", "PP921"),
        ("miles", "--num-rollouts", "PP901"),
        ("slime", "--my-own-flag", None),
        ("megatron-lm", "--my-own-flag", None),
    ],
)
def test_near_misses(framework: str | None, flag: str, id: str | None) -> None:
    declared = Declared({"framework": framework} if framework else {})
    line = f"python3 train.py --rollout-batch-size 8 {flag} blockwise"
    found = job_of(Command(words(line)), declared)
    assert found is not None
    assert [each.id for each in found.diagnostics] == ([id] if id else [])
    if id is None:
        assert (found.plan.launch.extra_args or {})["my-own-flag"] == "blockwise"
        assert found.uses[-2:] == ("passed", "passed")
    else:
        assert found.uses[-2:] == ("left", "left")
        assert [each.text for each in found.leftovers] == [flag, "blockwise"]


def test_words_that_may_be_any_arguments_are_left_over() -> None:
    found = job(f"{MEGATRON} $EXTRA --data-path a $MORE --fp16-x=$Y")
    assert [(each.kind, each.text) for each in found.leftovers] == [
        ("arguments", "$EXTRA"),
        ("arguments", "$MORE"),
        ("word", "--fp16-x=$Y"),
    ]


def test_the_target_fills_what_the_command_leaves_open() -> None:
    declared = Declared({"gpu": "h100", "nodes": "4", "gpus_per_node": "4"})
    line = "torchrun --nnodes 2 --nproc_per_node=8 pretrain_gpt.py --bf16"
    found = job_of(Command(words(line)), declared)
    assert found is not None
    hardware = found.plan.hardware
    assert (hardware.gpu, hardware.nodes, hardware.gpus_per_node) == ("h100", 2, 8)


def test_vllm() -> None:
    found = job(
        "vllm serve Qwen/Qwen3-8B --kv_cache_dtype fp8 -tp $TP --max-num-seqs 4", VLLM_X="1"
    )
    assert found.candidates == ("vllm",)
    assert found.plan.checkpoint.hf_checkpoint == "Qwen/Qwen3-8B"
    assert found.plan.rollout.kv_cache_dtype == "fp8"
    assert found.unknown == ("rollout.tensor_parallel_size",)
    assert found.plan.env.vllm_worker == {"VLLM_X": "1"}
    assert str(found.plan.origin("rollout.kv_cache_dtype")) == "run.sh:1:26"
    module = job("python -m vllm.entrypoints.openai.api_server --model $M/x --quantization fp8")
    assert module.plan.checkpoint.hf_checkpoint == "$M/x"
    assert module.plan.rollout.quantization == "fp8"


def test_an_entrypoint_in_quotes() -> None:
    line = "ray job submit -- "
    source = Source("run.sh", b"")
    quoted = literal("python3 train.py --rollout-batch-size 8 --bf16", source, len(line))
    found = job_of(Command((*words(line), quoted)))
    assert found is not None
    assert [each.id for each in found.diagnostics] == ["PP909"]
    assert found.plan.training.bf16 is True


def test_arguments_from_a_command_leave_nothing_known_to_be_absent() -> None:
    """``$(python args.py)`` is hardly empty; an unset variable is, unless somebody sets it."""
    line = "python3 train.py --rollout-batch-size 8 --bf16"
    source = Source("run.sh", b"$(x)")
    output = Text((Piece("$(x)", source, 0, known=False, split=True),))
    found = job_of(Command((*words(line), output)))
    assert found is not None
    assert found.unknown == ("software.framework",)
    assert found.plan.training.bf16 is True
    for plan in found.alternatives():
        with pytest.raises(NotKnown):
            plan.training.moe_grouped_gemm  # noqa: B018
    report = check_alternatives(found.alternatives())
    assert not report.diagnostics
    assert len(report.unchecked) > 100
    unset = job(f"{line} $X")
    assert unset.plan.training.moe_grouped_gemm is None


def test_a_value_that_the_plan_does_not_take_is_not_known() -> None:
    found = job(f"{MEGATRON} --num-layers 0")
    assert found.unknown == ("model.num_layers",)
    assert [(each.text, each.because) for each in found.leftovers] == [
        ("0", "model.num_layers takes no such value")
    ]


def test_a_cache_of_no_known_dtype_is_found() -> None:
    engine = "vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8-e4m3"
    trainer = "python3 train.py --hf-checkpoint /x --vllm-kv-cache-dtype fp8-e4m3"
    for line in (engine, trainer):
        found = job_of(Command(words(line)), Declared({"vllm": "0.33.0"}))
        assert found is not None
        report = check_alternatives(found.alternatives())
        assert [each.id for each in report.diagnostics if each.severity == "error"] == ["PP421"]
        (name,) = (key for key in found.plan.launch.extra_args or {} if "cache" in key)
        assert name == ("kv_cache_dtype" if line is engine else "vllm-kv-cache-dtype")
        assert "fp8_e4m3" in report.diagnostics[0].fix[0].text


def test_a_runtime_environment_that_is_not_known_may_set_any_variable() -> None:
    """Neither is a variable said to be absent, nor an export to reach nobody."""
    line = "ray job submit{} -- python3 train.py --hf-checkpoint /x --tensor-model-parallel-size 2"
    target = Declared({"gpu": "h100", "framework": "slime", "megatron_core": "0.16.1"})

    def ids(option: str) -> set[str]:
        exports = variables(CUDA_DEVICE_MAX_CONNECTIONS="1")
        command = Command(words(line.format(option)), exports, variables(NCCL_DEBUG="INFO"))
        found = job_of(command, target)
        assert found is not None
        assert found.plan.env.all == {"NCCL_DEBUG": "INFO"}
        return {each.id for each in check_alternatives(found.alternatives()).diagnostics}

    assert ids("") == {"PP324", "PP661"}
    for option in (" --runtime-env-json $JSON", " --runtime-env elsewhere.yaml"):
        assert ids(option) == set()


def test_model_arguments_that_are_not_known_leave_the_rest_known() -> None:
    line = "python3 train.py --rollout-batch-size 8 --bf16 $MODEL_ARGS"
    unread = job_of(Command(words(line)), unread=True)
    assert unread is not None
    plan = unread.alternatives()[0]
    for section, name in (("model", "num_layers"), ("training", "moe_grouped_gemm")):
        with pytest.raises(NotKnown):
            getattr(getattr(plan, section), name)
    assert plan.training.fp8_format is None
    known = job_of(Command(words(line)))
    assert known is not None
    assert known.alternatives()[0].model.num_layers is None
