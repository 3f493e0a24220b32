"""PP661 to PP664: what becomes of variables between a shell, Ray and the processes of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from precision_plan.facts.env_vars import env_var
from precision_plan.facts.frameworks import RL_FRAMEWORKS, framework_env
from precision_plan.plan import Because
from precision_plan.plan.environment import declared_env
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to

_RAY = "ray@2.60.0:_private/worker.py:1795-1812"
_EXPANDS = "ray@2.60.0:_private/utils.py:1674"

_ACTORS = frozenset({"train_actor", "rollout_engine", "vllm_worker"})
_NOT_OF_THE_JOB = frozenset({"python", "ray", "ld.so", "huggingface_hub"})
"""Readers that the submitting process has, too."""

_SET_BY_RAY = frozenset(
    {"CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"}
)
"""What Ray and the train actors write themselves: PP605 speaks of those."""


@rule(
    "PP661",
    "export-does-not-reach-job",
    "warning",
    stage="run",
    source=(_RAY, "vllm-project/vllm#14099"),
)
def export(ctx: Context) -> Iterator[Finding]:
    """A variable is exported in the shell that submits a job, and no process of the job sees it.

    Why:
        Processes of a Ray job inherit the environment of the shell in which ``ray start`` ran, and
        the job's runtime_env on top. The shell that runs ``ray job submit`` passes nothing on: an
        export there looks as if it were a setting of the run.

    Bad:
        software: {framework: slime}
        env: {all: {NCCL_NVLS_ENABLE: "1"}, shell: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}

    Good:
        software: {framework: slime}
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}, shell: {PYTHONUNBUFFERED: "1"}}
    """
    if ctx.env_open:
        return  # what could not be read may pass it on
    for name, value in (ctx.plan.env.shell or {}).items():
        row = env_var(name)
        if row is None or name in _SET_BY_RAY or _NOT_OF_THE_JOB.issuperset(row.read_by):
            continue
        readers = [role for role in row.roles_in(ctx.target.framework) if role in _ACTORS]
        if not readers or any(name in declared_env(ctx.plan, role) for role in readers):
            continue
        place = f"env.shell.{name}"
        yield ctx.found(
            f"{name} is exported where the job is submitted; no process of the job sees it",
            place,
            Because(f"read by {', '.join(row.read_by)} in: {', '.join(row.roles)}"),
            fix=(set_to((f"env.all.{name}", value), (place, None)),),
        )


_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@rule(
    "PP662",
    "reference-to-later-variable",
    "warning",
    stage="run",
    source=(_EXPANDS,),
    frameworks=RL_FRAMEWORKS,
)
def later(ctx: Context) -> Iterator[Finding]:
    """A variable of the job refers to one that is set after it, and gets the empty text.

    Why:
        Ray expands ``$NAME`` in the values of env_vars one after the other, in the order of the
        object, against the environment so far. A name that comes later is not there yet: it
        expands to nothing, or to what the machine had before. (A later ``NAME: ${NAME}`` passes on
        what the machine has, and makes no difference.)

    Bad:
        software: {framework: vime}
        env: {all: {PYTHONPATH: "${MEGATRON_DIR}/", MEGATRON_DIR: /root/Megatron-LM}}

    Good:
        software: {framework: vime}
        env: {all: {MEGATRON_DIR: /root/Megatron-LM, PYTHONPATH: "${MEGATRON_DIR}/"}}
    """
    variables = ctx.plan.env.all or {}
    names = list(variables)
    for at, (name, value) in enumerate(variables.items()):
        if "$" not in value:
            continue
        after = set(names[at + 1 :])
        for found in _REFERENCE.finditer(value):
            other = found[1] or found[2]
            if other in after and variables[other] not in {f"${other}", f"${{{other}}}"}:
                yield ctx.found(
                    f"{name} refers to {other}, which is set after it and has no value yet",
                    f"env.all.{name}",
                    f"env.all.{other}",
                    fix=(set_to((f"env.all.{other}", variables[other]), also=f" before {name}"),),
                )


@rule(
    "PP663",
    "home-is-not-expanded",
    "warning",
    stage="run",
    source=(_EXPANDS,),
    frameworks=RL_FRAMEWORKS,
)
def home(ctx: Context) -> Iterator[Finding]:
    """A variable of the job begins with ``~``, which nobody expands there.

    Why:
        The shell turns ``~`` into a home folder; Ray expands ``$NAME`` only. PYTHONPATH=~/x names
        a folder whose name is a tilde, and what lies in the real one is not imported.

    Bad:
        software: {framework: slime}
        env: {all: {PYTHONPATH: "~/Megatron-LM"}}

    Good:
        software: {framework: slime}
        env: {all: {PYTHONPATH: "${HOME}/Megatron-LM"}}
    """
    for scope in ("all", "train_actor"):
        for name, value in (getattr(ctx.plan.env, scope) or {}).items():
            if any(part.startswith("~/") for part in value.split(":")):
                place = f"env.{scope}.{name}"
                yield ctx.found(
                    f"{name} has a path that begins with ~, and nobody expands it",
                    place,
                    "software.framework",
                    fix=(set_to((place, value.replace("~/", "${HOME}/"))),),
                )


@rule(
    "PP664",
    "allocator-setting-stops-at-trainer",
    "advice",
    stage="run",
    source=(
        "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py",
        "THUDM/slime@624b824a:slime/backends/sglang_utils/sglang_engine.py:36-37",
    ),
    frameworks=("vime", "slime"),
)
def allocator(ctx: Context) -> Iterator[Finding]:
    """The framework takes the job's allocator setting out of the rollout engine's environment.

    Why:
        Expandable segments do not go with the engine's memory saver, so that vime and slime drop
        PYTORCH_CUDA_ALLOC_CONF before they start an engine. In the job's variables it looks as if
        it held for every process; it holds for the trainer.

    Bad:
        software: {framework: vime}
        env: {all: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}

    Good:
        software: {framework: vime}
        env: {train_actor: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}
    """
    given = ctx.plan.env.all or {}
    if ctx.extra("debug_train_only"):
        return  # there is no engine
    for row in framework_env(ctx.target.framework or ""):
        if row.how == "removed" and row.name in given and "rollout_engine" in row.roles:
            place = f"env.all.{row.name}"
            yield ctx.found(
                f"{ctx.target.framework} removes {row.name} from the rollout engine",
                place,
                "software.framework",
                fix=(set_to((f"env.train_actor.{row.name}", given[row.name]), (place, None)),),
            )


RULES: tuple[Rule, ...] = (export, later, home, allocator)
