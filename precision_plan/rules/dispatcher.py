"""PP389: options of the token dispatcher."""

from __future__ import annotations

from collections.abc import Iterator

from precision_plan.plan import Because
from precision_plan.rules.base import Context, Finding, Rule, rule, set_to
from precision_plan.rules.sources import transformer_config

_DISPATCHER = "training.moe_token_dispatcher_type"
_DEEPEP = "training.moe_enable_deepep"
_EXTRA = "launch.extra_args"


@rule(
    "PP389",
    "token-dispatcher-without-the-option",
    "error",
    stage="transformer_config",
    source=(
        transformer_config("1063-1094"),
        transformer_config("629-651", "core_v0.12.1"),
        transformer_config("1449-1473", "core_v0.18.2"),
    ),
)
def dispatcher_options(ctx: Context) -> Iterator[Finding]:
    """An option is asked of a token dispatcher that does not have it.

    Why:
        DeepEP is a backend of the flex dispatcher and cannot pad experts to a capacity; before
        0.16 flex could not with any backend. Shared experts overlap with the alltoall dispatcher
        and, from 0.18 on, with flex. ``allgather`` is the default.

    Bad:
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_enable_deepep: true}

    Good:
        model: {num_experts: 8, add_bias_linear: false}
        training: {bf16: true, moe_enable_deepep: true, moe_token_dispatcher_type: flex}
    """
    deepep = ctx.plan.training.moe_enable_deepep is True
    dispatcher = ctx.args.moe_token_dispatcher_type
    if deepep and dispatcher != "flex":
        yield ctx.found(
            f"{_DEEPEP} = true needs the flex dispatcher, not {dispatcher}",
            _DEEPEP,
            _DISPATCHER,
            fix=(set_to((_DISPATCHER, "flex")), set_to((_DEEPEP, None))),
        )
    backend = ctx.extra("moe_flex_dispatcher_backend")
    if deepep and backend == "hybridep":
        yield ctx.found(
            f"{_DEEPEP} = true excludes --moe-flex-dispatcher-backend hybridep",
            _DEEPEP,
            Because("launch.extra_args has it", _EXTRA),
            fix=(set_to((_DEEPEP, None)),),
        )
    pads = not ctx.core_since("0.16.0") or deepep or backend in (None, "deepep")
    if dispatcher == "flex" and pads and ctx.extra("moe_pad_expert_input_to_capacity"):
        yield _excludes(ctx, "--moe-pad-expert-input-to-capacity")
    shared = ctx.plan.model.moe_shared_expert_intermediate_size is not None
    able = {"alltoall", "flex"} if ctx.core_since("0.18.0") else {"alltoall"}
    if shared and dispatcher not in able and ctx.extra("moe_shared_expert_overlap"):
        yield _excludes(ctx, "--moe-shared-expert-overlap")


def _excludes(ctx: Context, flag: str) -> Finding:
    return ctx.found(
        f"the {ctx.args.moe_token_dispatcher_type} dispatcher excludes {flag}",
        _DISPATCHER,
        Because("launch.extra_args has it", _EXTRA),
        fix=(set_to((_DISPATCHER, "alltoall")),),
    )


RULES: tuple[Rule, ...] = (dispatcher_options,)
