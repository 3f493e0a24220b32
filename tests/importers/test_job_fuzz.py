"""Whatever the words are, reading them ends, accounts for each, and the rules can be run."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.importers.declarations import Declared, declared_in
from precision_plan.importers.job_files import read_processes
from precision_plan.importers.job_plan import job_of, jobs_of
from precision_plan.importers.job_yaml import read_job_file
from precision_plan.importers.jobs import Command
from precision_plan.importers.texts import Piece, Source, Text, literal
from precision_plan.lower import lower
from precision_plan.rules.alternatives import check_alternatives

PROGRAMS = ["env", "sudo", "docker", "python3", "torchrun", "ray", "vllm", "ssh", "time", "uv"]
PARTS = [
    *PROGRAMS,
    *("job", "submit", "serve", "run", "-m", "-c", "--", "-", "", "=", "A=1", "-e", "-i", "-E"),
    *("train.py", "pretrain_gpt.py", "torch.distributed.run", "vllm.entrypoints.cli.main"),
    *("--runtime-env-json", "--runtime-env", "{}", '{"env_vars": {"A": NaN, "B": [1]}}', "[", "{"),
    *("--train-env-vars", '{"A": {"B": 1}}', "--nnodes", "1:4", "--nproc_per_node", "8", "0"),
    *("--tensor-model-parallel-size", "--fp8-format", "--rollout-num-gpus", "--vllm-x", "e4m3"),
    *("--kv-cache-dtype=fp8", "-O3", "--x.y", "--moe-layer-freq", "[1]*9999999", "--bf16", "é\n"),
]
TARGETS = [{}, {"framework": "slime"}, {"framework": "vime", "gpu": "h100"}, {"vllm": "0.30.0"}]


def word(drawn: tuple[str, str]) -> Text:
    text, kind = drawn
    source = Source("run.sh", text.encode())
    if kind == "known":
        return literal(text, source)
    name = "X" if kind == "unset" else ""
    unknown = Piece("${X}" if name else "$(x)", source, 0, False, False, split=True, name=name)
    return Text((Piece(text, source), unknown) if kind == "half" else (unknown,))


WORD = st.tuples(
    st.sampled_from(PARTS), st.sampled_from(["known"] * 6 + ["unset", "output", "half"])
)


@given(st.lists(WORD, min_size=1, max_size=14), st.sampled_from(TARGETS), st.booleans())
@settings(max_examples=500, deadline=None)
def test_any_words(drawn: list[tuple[str, str]], target: dict[str, str], started: bool) -> None:
    words = tuple(map(word, drawn))
    exports = {"NVTE_DEBUG": words[0], "EMPTY": Text()}
    job = job_of(Command(words, exports, exports if started else None), Declared(target))
    if job is None:
        return
    assert len(job.uses) == len(job.command.words)
    report = check_alternatives(job.alternatives())
    assert report.checked >= 0
    for plan in job.alternatives():
        assert plan.fingerprint()
        lower(plan)


@given(st.binary(max_size=80) | st.text("#precision-plan: gpu=h1\n ", max_size=60).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_any_bytes(data: bytes) -> None:
    source = Source("x.yaml", data)
    for found in (read_job_file(source), read_job_file(Source("x.json", data))):
        assert found is None or isinstance(found.jobs, list)
    declared = declared_in([source])
    assert set(declared.values) == set(declared.origins)
    reading = read_processes(source)
    assert len(jobs_of(reading, declared)) <= len(reading.commands)
