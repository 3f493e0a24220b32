"""PP608 and PP609: vLLM's variables against its version and against each other."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.facts.env_vars import dead_names, env_var
from precision_plan.facts.vllm_env_names import vllm_env_names, vllm_span
from precision_plan.rules.base import Context, Finding, Found, Rule, rule, set_to
from precision_plan.rules.environment import declared

_ENGINE_SCOPES = {"all", "rollout_engine", "vllm_worker"}


@rule(
    "PP608",
    "variable-not-in-vllm-version",
    "warning",
    stage="run",
    source=(
        "vllm@0.33.0:vllm/envs.py:621",
        "vllm@0.33.0:vllm/platforms/interface.py:1457-1470",
        "llm-d-incubation/llm-d-fast-model-actuation#597",
    ),
)
def not_in_version(ctx: Context) -> Iterator[Finding]:
    """A vLLM variable is set that the declared release does not have.

    Why:
        vLLM declares its variables in one table, and names come and go with releases. One that
        the table lacks is worth a line in the log; the setting is not made. What has a
        successor is PP604's.

    Bad:
        software: {framework: vime, vllm: 0.12.0}
        env: {rollout_engine: {VLLM_FLOAT32_MATMUL_PRECISION: high}}

    Good:
        software: {framework: vime, vllm: 0.33.0}
        env: {rollout_engine: {VLLM_FLOAT32_MATMUL_PRECISION: high}}
    """
    have = ctx.target.package("vllm")
    if have is None:
        return
    for scope, name, _ in declared(ctx):
        runs = vllm_env_names().get(name)
        if scope not in _ENGINE_SCOPES or runs is None or not name.startswith("VLLM_"):
            continue
        if any(have in run.versions for run in runs) or _told_elsewhere(scope, name, have):
            continue
        place = f"env.{scope}.{name}"
        yield ctx.found(
            f"vLLM {have} does not read {name} ({vllm_span(name)})",
            place,
            "software.vllm",
            fix=(set_to((place, None)),),
        )


def _told_elsewhere(scope: str, name: str, have: str) -> bool:
    """True if PP604 (names with a successor) or PP623 (the train actor's) speaks of it."""
    dead = dead_names().get(name)
    if dead is not None and (dead.versions.is_open or have in dead.versions):
        return True
    return scope == "all" and env_var(name) is not None


_SWITCHES = ("VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM")


@rule(
    "PP609",
    "deep-gemm-on-and-off",
    "warning",
    stage="policy",
    source=(
        "vllm@0.33.0:vllm/model_executor/layers/fused_moe/oracle/fp8.py:484-496",
        "vllm@0.12.0:vllm/model_executor/warmup/deep_gemm_warmup.py:151",
    ),
)
def deep_gemm_halves(ctx: Context) -> Found:
    """VLLM_MOE_USE_DEEP_GEMM=1 asks for DeepGEMM, and VLLM_USE_DEEP_GEMM=0 forbids it.

    Why:
        vLLM takes DeepGEMM for experts only if both switches are on: with the general one at 0
        the expert one is without effect, although it was written to be obeyed.

    Bad:
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM: "0", VLLM_MOE_USE_DEEP_GEMM: "1"}}

    Good:
        env: {rollout_engine: {VLLM_USE_DEEP_GEMM: "1", VLLM_MOE_USE_DEEP_GEMM: "0"}}
    """
    general, experts = (ctx.rollout_env.get(name) for name in _SWITCHES)
    if general is None or experts is None or general[0] != "0" or experts[0] != "1":
        return None
    return ctx.found(
        "VLLM_MOE_USE_DEEP_GEMM=1 has no effect: VLLM_USE_DEEP_GEMM=0",
        experts[1],
        general[1],
        fix=(set_to((experts[1], None)), set_to((general[1], "1"))),
    )


RULES: tuple[Rule, ...] = (not_in_version, deep_gemm_halves)
