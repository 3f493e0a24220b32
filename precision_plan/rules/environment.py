"""PP60x: environment variables by process role: who reads them, and who sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from precision_plan.facts.env_vars import DeadName, dead_names, env_var, is_secret
from precision_plan.facts.frameworks import RL_FRAMEWORKS, framework_env
from precision_plan.plan import Because, Fix
from precision_plan.plan.environment import FIELD_VARIABLES, declared_env, env_text
from precision_plan.plan.secrets import is_secret as is_secret_argument
from precision_plan.plan.unknown import is_reference
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to

_PRECEDENCE = "THUDM/slime@624b824a:slime/ray/actor_group.py:64-98"
_ENGINE = "vllm-project/vime@039ae4dd:vime/backends/vllm_utils/vllm_engine.py"

SCOPES = ("all", "driver", "train_actor", "rollout_engine", "vllm_worker", "converter")


def declared(ctx: Context, *more: str) -> Iterator[tuple[str, str, str]]:
    """Yield ``(scope, variable, value)`` of every entry of the plan's ``env`` section.

    Entries that reach no process of the run (``shell``) are there only if asked for.
    """
    env = ctx.plan.env
    for scope in (*SCOPES, *more):
        variables = getattr(env, scope)
        if variables:
            for name, value in variables.items():
                yield scope, name, value


@rule(
    "PP601",
    "variable-and-field-disagree",
    "error",
    stage="run",
    source=(_PRECEDENCE,),
)
def variable_and_field(ctx: Context) -> Iterator[Finding]:
    """A plan field and an environment variable are one setting, and they have two values.

    Why:
        Transformer Engine's recipe knobs and the fake-quantization switches are environment
        variables; the plan has a typed field for each. If both are written, the field is what
        is lowered, so the variable in ``env`` is not what the process sees.

    Bad:
        training: {bf16: true, fp8_block_scaling_fp32_scales: true}
        env: {train_actor: {NVTE_FP8_BLOCK_SCALING_FP32_SCALES: "0"}}

    Good:
        training:
          {bf16: true, fp8_format: e4m3, fp8_recipe: blockwise,
           fp8_block_scaling_fp32_scales: true}
    """
    if ctx.plan.env.all is None and ctx.plan.env.train_actor is None:
        return
    written = declared_env(ctx.plan, "train_actor")
    for field, name in FIELD_VARIABLES.items():
        entry = written.get(name)
        if entry is None:
            continue
        value = ctx.plan.get(field)
        if value is not None and env_text(value) != entry[0] and not is_reference(entry[0]):
            yield ctx.found(
                f"{ctx.shown(field)} is {name}={env_text(value)}, but {entry[1]} = {entry[0]}",
                field,
                entry[1],
                fix=(set_to((entry[1], None)), set_to((field, None))),
            )


_OWNERS = ("NVTE_", "OPEN_TRAINING_", "VLLM_", "FLASHINFER_", "SGLANG_", "DSA_KV_")
_REACH = {
    "driver": {"driver"},
    "train_actor": {"train_actor"},
    "rollout_engine": {"rollout_engine", "vllm_worker"},
    "vllm_worker": {"vllm_worker"},
}
_TITLES = {
    "driver": "the driver",
    "train_actor": "the train actors",
    "rollout_engine": "the rollout engine",
    "vllm_worker": "vLLM's workers",
    "converter": "the converter",
}


@rule(
    "PP602",
    "variable-in-wrong-role",
    "error",
    stage="run",
    source=(_PRECEDENCE, "vllm-project/vllm#14099", "verl-project/verl-omni#165"),
    frameworks=RL_FRAMEWORKS,
)
def wrong_role(ctx: Context) -> Iterator[Finding]:
    """A variable is given to a process that does not read it, and its reader does not see it.

    Why:
        Ray actors inherit the raylet's environment, not the driver's. ``env.train_actor``
        becomes --train-env-vars, which never reaches the rollout engine; ``env.driver`` reaches
        no actor, except for the few variables that the framework copies. ``env.all`` reaches
        every role through the job. A switch in the wrong place is off without a word.

    Bad:
        software: {framework: vime}
        env: {train_actor: {VLLM_MOE_USE_DEEP_GEMM: "0"}}

    Good:
        software: {framework: vime}
        env: {rollout_engine: {VLLM_MOE_USE_DEEP_GEMM: "0"}}
    """
    for scope, name, value in declared(ctx):
        if scope not in _REACH or not name.startswith(_OWNERS):
            continue
        row = env_var(name)
        if row is None or _REACH[scope] & row.roles_in(ctx.target.framework):
            continue
        if scope == "driver" and name in _copied(ctx.target.framework or ""):
            continue
        if any(_sees(ctx, role, name) for role in row.roles):
            continue
        reader, place = row.roles[0], f"env.{scope}.{name}"
        yield ctx.found(
            f"env.{scope} does not reach the reader of {name}: {_TITLES[reader]}",
            place,
            Because(f"read by {', '.join(row.read_by)} in: {', '.join(row.roles)}"),
            "software.framework",
            fix=(
                set_to((f"env.{reader}.{name}", value), (place, None)),
                set_to((f"env.all.{name}", value), (place, None)),
            ),
        )


def _sees(ctx: Context, role: str, name: str) -> bool:
    """True if another entry gives the variable to ``role``."""
    return role in _TITLES and name in declared_env(ctx.plan, role)


@lru_cache(maxsize=8)
def _copied(framework: str) -> frozenset[str]:
    """Variables whose value the framework copies from the driver into an actor."""
    return frozenset(
        row.name
        for row in framework_env(framework)
        if row.how == "default" and not row.name.startswith("VLLM_")
    )


@rule(
    "PP604",
    "variable-without-a-reader",
    "warning",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/envs.py:1",
        "NVIDIA/TransformerEngine#2949",
        "ray-project/ray#47286",
        "llm-d-incubation/llm-d-fast-model-actuation#597",
    ),
    fixable=True,
)
def without_a_reader(ctx: Context) -> Iterator[Finding]:
    """A variable has been renamed or removed, or never had a reader.

    Why:
        Launch scripts outlive the programs they start. vLLM moved its attention and MoE
        switches from variables to arguments, Transformer Engine dropped some; NCCL_TIMEOUT_MS
        and PYTHONBUFFERED never existed. The setting that the script relies on is not made.

    Bad:
        software: {vllm: 0.33.0}
        env: {all: {VLLM_ATTENTION_BACKEND: FLASHINFER}}

    Good:
        software: {vllm: 0.33.0}
        rollout: {attention_backend: FLASHINFER}
    """
    dead = dead_names()
    for scope, name, value in declared(ctx, "shell"):
        row = dead.get(name)
        if row is None:
            continue
        have = ctx.target.package(row.package) if row.package else None
        if not row.versions.is_open and (have is None or have not in row.versions):
            continue
        since = f" ({row.package} {row.versions})" if row.package and have else ""
        place = f"env.{scope}.{name}"
        how = "has no reader" if row.status == "inert" else f"is {row.status}{since}"
        yield ctx.found(
            f"{name} {how}",
            place,
            *([Because(row.note)] if row.note else ()),
            fix=_instead(row, f"env.{scope}", value),
        )


def _instead(row: DeadName, scope: str, value: str) -> tuple[Fix, ...]:
    """What to do about a name that nothing reads: to remove it is safe, to use another rarely."""
    place = f"{scope}.{row.name}"
    if row.use is None:
        return (set_to((place, None), safe=True),)
    edits: dict[str, str | None] = {place: None}
    if row.use.isupper() and row.use.isidentifier():
        edits[f"{scope}.{row.use}"] = value
    how: Literal["safe", "suggested"] = "safe" if row.harmless else "suggested"
    return (Fix(f"use {row.use} instead", edits, how), set_to((place, None)))


_WRITTEN_LATER = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


@rule(
    "PP605",
    "variable-overwritten-by-framework",
    "warning",
    stage="run",
    source=(f"{_PRECEDENCE}", "THUDM/slime@624b824a:slime/ray/train_actor.py:38-45", _ENGINE),
    frameworks=RL_FRAMEWORKS,
    fixable=True,
)
def overwritten(ctx: Context) -> Iterator[Finding]:
    """The framework replaces or removes a variable that the plan sets for an actor.

    Why:
        Train actors write MASTER_ADDR, RANK and their kin themselves; with offloading the
        framework sets LD_PRELOAD and TMS_* after --train-env-vars; vime and slime take
        PYTORCH_CUDA_ALLOC_CONF out of the engine's environment. The plan's value has no effect.

    Bad:
        software: {framework: vime}
        env: {rollout_engine: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}

    Good:
        software: {framework: vime}
        env: {train_actor: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True"}}
    """
    env, launch = ctx.plan.env, ctx.plan.launch
    for name in _WRITTEN_LATER if env.train_actor else ():
        if name in (env.train_actor or {}):
            yield _no_effect(ctx, "train_actor", name, "each train actor writes it itself")
    if env.train_actor is None and env.rollout_engine is None:
        return
    for row in framework_env(ctx.target.framework or ""):
        if row.how not in {"forced", "final", "removed"}:
            continue
        if row.when == "offload_train" and not (launch.offload_train or launch.colocate):
            continue
        for role in row.roles:
            given = getattr(env, role) or {}
            if row.name in given and given[row.name] != row.value:
                does = "removes it" if row.value is None else f"sets it to {row.value}"
                yield _no_effect(ctx, role, row.name, f"{ctx.target.framework} {does}")


def _no_effect(ctx: Context, role: str, name: str, why: str) -> Finding:
    place = f"env.{role}.{name}"
    fix = (set_to((place, None), safe=True),)
    return ctx.found(f"{place} has no effect: {why}", place, "software.framework", fix=fix)


@rule(
    "PP606",
    "secret-in-the-plan",
    "warning",
    stage="policy",
    source=("https://docs.ray.io/en/latest/ray-core/handling-dependencies.html",),
)
def secret(ctx: Context) -> Iterator[Finding]:
    """A secret stands in the plan in plain text.

    Why:
        A plan is committed, printed by the dry run and handed to Ray, whose dashboard shows
        the job's environment. Give the value at start (``HF_TOKEN: ${HF_TOKEN}`` is expanded
        by Ray on the worker, from the environment that the raylet was started with). An argument
        is shown by every list of processes as well.

    Bad:
        env: {all: {HF_TOKEN: not-a-real-token}}

    Good:
        env: {all: {HF_TOKEN: "${HF_TOKEN}"}}
    """
    for scope, name, value in declared(ctx):
        if is_secret(name) and _is_plain(value):
            yield ctx.found(
                f"{name} looks like a secret and is written in plain text",
                f"env.{scope}.{name}",
                fix=(set_to((f"env.{scope}.{name}", f"${{{name}}}")),),
            )
    for name, value in (ctx.plan.launch.extra_args or {}).items():
        if is_secret_argument(name) and _is_plain(value):
            flag = f"--{name.lstrip('-').replace('_', '-')}"
            yield ctx.found(
                f"{flag} looks like a secret and is written in plain text",
                f"launch.extra_args.{name}",
                fix=(Fix("give it as a variable that is set outside"),),
            )


def _is_plain(value: object) -> bool:
    """True for a text that is what it says, and no filler (``sk-000000000000``)."""
    if not isinstance(value, str) or value in _NO_SECRET or is_reference(value):
        return False
    if _NOTE.search(value):
        return False
    return len(value) < _FILLED or len(set(value[-_FILLED:])) > 1


_FILLED = 8
_NOTE = re.compile(r"\byour\b|your[_-]|<[^>]*>|changeme|placeholder", re.IGNORECASE)
"""What tells a reader to put his own key there."""
_NO_SECRET = frozenset({"", "EMPTY", "None"})
"""What is written where a client wants some key and the server none."""


@rule(
    "PP607",
    "variable-empty",
    "advice",
    stage="run",
    source=("https://docs.ray.io/en/latest/ray-core/api/doc/ray.runtime_env.RuntimeEnv.html",),
)
def empty(ctx: Context) -> Found:
    """A variable is set to the empty text.

    Why:
        Launch scripts paste shell variables into the job's environment, and one that is not
        set leaves an empty text behind (MASTER_ADDR="" in several public scripts). Most
        programs read that as a value, not as absence.

    Bad:
        env: {all: {MASTER_ADDR: ""}}

    Good:
        env: {all: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}}
    """
    return [
        ctx.found(
            f"{name} is set to the empty text",
            f"env.{scope}.{name}",
            fix=(set_to((f"env.{scope}.{name}", None)),),
        )
        for scope, name, value in declared(ctx)
        if value == ""
    ]


RULES: tuple[Rule, ...] = (
    variable_and_field,
    wrong_role,
    without_a_reader,
    overwritten,
    secret,
    empty,
)
