"""Variables of a launch: who sets them, whom they reach, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.importers.job_plan import job_of
from precision_plan.importers.jobs import Command, ImportedJob
from precision_plan.importers.texts import Source, Text, literal

START = ("ray", "job", "submit")
RUN = ("--", "python3", "train.py", "--rollout-batch-size", "8")


def texts(*words: str) -> tuple[Text, ...]:
    return tuple(literal(word, Source("run.sh", word.encode())) for word in words)


def shell(**values: str) -> dict[str, Text]:
    return {name: texts(value)[0] for name, value in values.items()}


def submitted(
    runtime_env: str | None = None,
    *more: str,
    exports: dict[str, Text] | None = None,
    ray_env: dict[str, Text] | None = None,
) -> ImportedJob:
    option = () if runtime_env is None else ("--runtime-env-json", runtime_env)
    words = texts(*START, *option, *RUN, *more)
    found = job_of(Command(words, exports or {}, ray_env))
    assert found is not None
    return found


def found_in(job: ImportedJob) -> list[tuple[str, str | None, int]]:
    return [(each.id, each.field, each.origin.column) for each in job.diagnostics]


def test_layers_of_a_ray_job() -> None:
    job = submitted(
        '{"env_vars": {"A": "job", "B": "job"}, "working_dir": "/w"}',
        "--train-env-vars",
        '{"B": "train"}',
        exports=shell(A="shell", C="shell", D="raylet"),
        ray_env=shell(A="raylet", D="raylet"),
    )
    env = job.plan.env
    assert env.all == {"A": "job", "D": "raylet", "B": "job"}
    assert env.train_actor == {"B": "train"}
    assert env.shell == {"A": "shell", "C": "shell"}
    assert job.plan.launch.working_dir == "/w"
    assert str(job.plan.origin("env.all.B")) == "run.sh:1:27"


def test_without_a_runtime_env_nothing_is_known() -> None:
    env = submitted().plan.env
    assert env.all is None and env.shell is None


@pytest.mark.parametrize(
    ("ray_env", "all_", "driver"),
    [
        (None, {"A": "1"}, None),
        ({"A": "0"}, {"A": "0"}, {"A": "1"}),
        ({"A": "1"}, {"A": "1"}, None),
    ],
)
def test_a_driver_in_the_shell(
    ray_env: dict[str, str] | None, all_: dict[str, str], driver: dict[str, str] | None
) -> None:
    words = texts("python3", "train.py", "--rollout-batch-size", "8")
    started = None if ray_env is None else shell(**ray_env)
    job = job_of(Command(words, shell(A="1"), started))
    assert job is not None
    assert (job.plan.env.all, job.plan.env.driver) == (all_, driver)


def test_prefixes_change_the_environment() -> None:
    run = ("pretrain_gpt.py", "--bf16")
    env = shell(A="1", B="2")
    for prefix, expected in (
        (("env", "C=3"), {"A": "1", "B": "2", "C": "3"}),
        (("env", "-i", "C=3"), {"C": "3"}),
        (("sudo",), None),
        (("sudo", "-E"), {"A": "1", "B": "2"}),
        (("docker", "run", "-e", "X=1", "-e", "A", "image"), {"X": "1", "A": "1"}),
    ):
        job = job_of(Command(texts(*prefix, "python", *run), env))
        assert job is not None
        assert job.plan.env.all == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"env_vars": {"A": 1}}', [("PP914", "A", 15)]),
        ('{"env_vars": {"A": null, "B": true}}', [("PP914", "A", 15), ("PP914", "B", 26)]),
        ('{"env_vars": ["A=1"]}', [("PP914", "env_vars", 2)]),
        ('{"env_var": {"A": "1"}}', [("PP913", "env_var", 2)]),
        ('{"workingdir": "."}', [("PP913", "workingdir", 2)]),
        ('{"env_vars": {"A": "1" "B": "2"}}', [("PP915", "--runtime-env-json", 24)]),
        ("[]", [("PP915", "--runtime-env-json", 1)]),
        ('{"env_vars": {"A": "1", "A": "2"}}', [("PP916", "env_vars.A", 25)]),
        ('{"env_vars": null, "pip": ["x"], "config": {}}', []),
    ],
)
def test_runtime_env(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert found_in(submitted(text)) == expected


def test_a_plugin_may_have_a_key() -> None:
    job = submitted('{"my_plugin": {}}')
    assert not job.diagnostics
    assert [(each.kind, each.text) for each in job.leftovers] == [("word", "my_plugin")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"A": "1"}', []),
        ('{"A": 1}', [("PP914", "A", 2)]),
        ("{A: 1}", [("PP915", "--train-env-vars", 2)]),
    ],
)
def test_train_env_vars(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert found_in(submitted(None, "--train-env-vars", text)) == expected
    assert found_in(submitted(None, f"--train-env-vars={text}")) == [
        (id, field, column + len("--train-env-vars=")) for id, field, column in expected
    ]


def test_two_runtime_envs() -> None:
    words = texts(*START, "--runtime-env", "env.yaml", "--runtime-env-json", "{}", *RUN)
    job = job_of(Command(words))
    assert job is not None
    assert [each.id for each in job.diagnostics] == ["PP908"]


def test_a_runtime_env_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("env_vars:\n  NVTE_DEBUG: '1'\n  NCCL_DEBUG: 1\n")
    script = Source(str(tmp_path / "run.sh"), b"env.yaml")
    words = (*texts(*START, "--runtime-env"), literal("env.yaml", script), *texts(*RUN))
    job = job_of(Command(words))
    assert job is not None
    assert job.plan.env.all == {"NVTE_DEBUG": "1", "NCCL_DEBUG": "1"}
    assert job.plan.origin("env.all.NVTE_DEBUG").line == 2
    assert [(each.id, each.origin.line) for each in job.diagnostics] == [("PP914", 3)]
    file.write_text("env_vars: {\n")
    broken = job_of(Command(words))
    assert broken is not None
    assert [each.id for each in broken.diagnostics] == ["PP915"]
    file.unlink()
    gone = job_of(Command(words))
    assert gone is not None
    assert not gone.diagnostics
    assert [(each.kind, each.text) for each in gone.leftovers] == [("source", "env.yaml")]


def test_a_runtime_env_that_the_shell_tore() -> None:
    """Without quotes it is several words, and the command stands behind them."""
    words = texts(*START, "--runtime-env-json={env_vars:", "{A:", "1}}", *RUN)
    job = job_of(Command(words))
    assert job is not None
    assert [each.id for each in job.diagnostics] == ["PP915"]
    assert job.plan.launch.entrypoint == "train.py"


def test_a_runtime_env_in_no_file() -> None:
    for name in ("x" * 5000, "${X}.yaml", "no\nname"):
        job = job_of(Command(texts(*START, "--runtime-env", name, *RUN)))
        assert job is not None
        assert [each.kind for each in job.leftovers] == ["source"]
