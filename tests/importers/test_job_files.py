"""Launches from other files than scripts: arguments, process lists, Ray, compose, Kubernetes."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest

from precision_plan.importers.declarations import Declared
from precision_plan.importers.job_files import read_processes, read_words
from precision_plan.importers.job_plan import jobs_of
from precision_plan.importers.job_yaml import FileJobs, read_job_file
from precision_plan.importers.jobs import ScriptReading
from precision_plan.importers.texts import Source

RUN = "python3 train.py --rollout-batch-size 8 --bf16"


def processes(text: str) -> ScriptReading:
    return read_processes(Source("ps.txt", text.encode()))


def shown(reading: ScriptReading) -> list[str]:
    return [" ".join(word.shown for word in command.words) for command in reading.commands]


def test_words() -> None:
    reading = read_words(["vllm", "serve", "a/b c", "--kv-cache-dtype", "fp8"])
    (job,) = jobs_of(reading)
    assert job.plan.rollout.kv_cache_dtype == "fp8"
    assert job.plan.checkpoint.hf_checkpoint == "a/b c"
    assert str(job.plan.origin("rollout.kv_cache_dtype")) == "argv:1:18"
    assert read_words([]).commands == ()


def test_ps_ef() -> None:
    text = (
        "UID          PID    PPID  C STIME TTY          TIME CMD\n"
        f"root         100       1  0 Nov30 ?        00:00:01 {RUN}\n"
        f"root         101       1  0 Nov30 ?        00:00:01 {RUN}\n"
        "root         102       1  0 Nov30 ?        00:00:01 [kworker/0:1]\n"
    )
    reading = processes(text)
    assert shown(reading) == [RUN, "[kworker/0:1]"]
    (job,) = jobs_of(reading)
    origin = job.plan.origin("training.bf16")
    assert (origin.line, origin.column) == (2, text.split("\n")[1].index("--bf16") + 1)


def test_ps_aux_and_json_that_lost_its_quotes() -> None:
    text = (
        "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
        f'root 7 0.0 0.1 10 20 ? Sl 10:01 0:01 {RUN} --train-env-vars {{"A": "1", "B": "2"}}\n'
    )
    (job,) = jobs_of(processes(text))
    assert job.plan.env.train_actor == {"A": "1", "B": "2"}


def test_a_list_without_a_header() -> None:
    reading = processes(f"1234 ?        Sl     0:01 /usr/bin/{RUN}\nnothing of it\n")
    assert shown(reading) == [f"/usr/bin/{RUN}"]
    assert [(each.kind, each.text) for each in reading.leftovers] == [("command", "nothing of it")]


def test_a_word_that_was_cut_is_no_stray_value() -> None:
    (job,) = jobs_of(processes(f"{RUN} --prompt-template a b c"))
    assert not job.diagnostics


def test_cmdline_of_a_process() -> None:
    reading = processes("\0".join((*RUN.split(), "--load", "/a b", "")))
    (job,) = jobs_of(reading)
    assert job.plan.checkpoint.load == "/a b"


def read(name: str, text: str, **declared: str) -> FileJobs:
    found = read_job_file(Source(name, dedent(text).encode()), Declared(declared))
    assert found is not None
    return found


def findings(found: FileJobs) -> list[tuple[str, str | None, int]]:
    diagnostics = [*found.diagnostics, *(each for job in found.jobs for each in job.diagnostics)]
    return [(each.id, each.field, each.origin.line) for each in diagnostics]


def test_runtime_env_in_json() -> None:
    text = json.dumps({"env_vars": {"NCCL_NVLS_ENABLE": "1", "A": 1}, "env_var": {}}, indent=1)
    found = read("env.json", text, framework="slime")
    (job,) = found.jobs
    assert job.plan.env.all == {"NCCL_NVLS_ENABLE": "1", "A": "1"}
    assert job.candidates == ("slime",)
    assert str(job.plan.origin("env.all.NCCL_NVLS_ENABLE")) == "env.json:3:3"
    assert findings(found) == [("PP914", "A", 4), ("PP913", "env_var", 6)]


def test_runtime_env_in_yaml() -> None:
    text = """\
        working_dir: .
        env_vars:
          NCCL_CUMEM_ENABLE: 0
          NVTE_DEBUG: "1"
    """
    found = read("env.yaml", text)
    (job,) = found.jobs
    assert job.candidates == () and job.alternatives() == (job.plan,)
    assert job.plan.env.all == {"NCCL_CUMEM_ENABLE": "0", "NVTE_DEBUG": "1"}
    assert job.plan.launch.working_dir == "."
    assert str(job.plan.origin("env.all.NVTE_DEBUG")) == "env.yaml:4:3"
    assert findings(found) == [("PP914", "NCCL_CUMEM_ENABLE", 3)]


COMPOSE = """\
    services:
      engine:
        image: vllm/vllm-openai:v0.33.0
        command: --model Qwen/Qwen3-8B --kv-cache-dtype ${KV}
        environment:
          - VLLM_USE_DEEP_GEMM=1
          - HF_HOME=${CACHE}/hf
      trainer:
        entrypoint: [python3, train.py]
        command: ["--rollout-batch-size", "8", "--fp8-recipee", "blockwise"]
        environment:
          NCCL_CUMEM_ENABLE: 0
          NVTE_DEBUG: true
      proxy:
        image: nginx
"""


def test_compose() -> None:
    found = read("compose.yaml", COMPOSE)
    engine, trainer = found.jobs
    assert engine.candidates == ("vllm",)
    assert engine.unknown == ("rollout.kv_cache_dtype",)
    assert engine.plan.env.vllm_worker == {"VLLM_USE_DEEP_GEMM": "1", "HF_HOME": "${CACHE}/hf"}
    assert trainer.plan.env.all == {"NCCL_CUMEM_ENABLE": "0"}
    assert findings(found) == [("PP914", "NVTE_DEBUG", 13), ("PP911", "--fp8-recipee", 10)]


KUBERNETES = """\
    apiVersion: v1
    kind: Service
    metadata: {name: x}
    ---
    apiVersion: apps/v1
    kind: Deployment
    spec:
      template:
        spec:
          containers:
            - name: main
              command: ["bash", "-c"]
              args:
                - |
                  export NVTE_DEBUG=1
                  python3 train.py --rollout-batch-size 8 --fp8-format $FORMAT
              env:
                - name: NCCL_CUMEM_ENABLE
                  value: "0"
                - name: HF_TOKEN
                  valueFrom: {secretKeyRef: {name: hf, key: token}}
                - name: NCCL_DEBUG_LEVEL
                  value: 3
"""


def test_kubernetes() -> None:
    found = read("pod.yaml", KUBERNETES)
    (job,) = found.jobs
    assert job.plan.env.all == {
        "NCCL_CUMEM_ENABLE": "0",
        "HF_TOKEN": "${HF_TOKEN}",
        "NVTE_DEBUG": "1",
    }
    assert "training.fp8_format" in job.unknown
    assert findings(found) == [("PP914", "NCCL_DEBUG_LEVEL", 23)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "training: {bf16: true}\n"),
        ("a.yaml", "- a\n- b\n"),
        ("a.json", '{"model_type": "qwen3"}'),
        ("a.json", "[1]"),
        ("a.json", "no json"),
        ("a.yaml", ""),
    ],
)
def test_other_files(name: str, text: str) -> None:
    assert read_job_file(Source(name, text.encode())) is None


def test_a_broken_file_is_a_finding() -> None:
    found: Any = read_job_file(Source("a.yaml", b"services: {a: [}\n"))
    assert [each.id for each in found.diagnostics] == ["PP001"]
