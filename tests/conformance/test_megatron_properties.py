"""The linter and megatron-core's own classes say the same of generated command lines.

A line is linted as a row of ``lint --jsonl``, and the classes are constructed from it as Megatron
does after its argument checks. The checks themselves are not in the wheel, so lines that the
linter stops there are left out. ``HYPOTHESIS_PROFILE=thorough`` generates many more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, event, given

pytest.importorskip("torch")

from precision_plan.batch import lint_row
from precision_plan.importers.rows import megatron_row
from precision_plan.rules.base import Context
from tests._hypothesis import examples
from tests._packages import installed_version
from tests.conformance import megatron_arguments as megatron
from tests.conformance.command_lines import CommandLine, command_lines
from tests.conformance.megatron_classes import megatron_class, transformer_engine

if installed_version("megatron-core") != megatron.VERSION:
    pytest.skip(f"written for megatron-core {megatron.VERSION}", allow_module_level=True)

Make = Callable[[SimpleNamespace], tuple[str, megatron.Keywords]]
STAGES: Mapping[str, Make] = {
    "transformer_config": megatron.transformer_config,
    "ddp_config": megatron.ddp_config,
    "optimizer_config": megatron.optimizer_config,
}
DERIVED = {"enable_cuda_graph", "external_cuda_graph"}
"""Old spellings: the class holds what they stand for."""


class Refused(Exception):
    """A constructor raised; the text is its message."""


def built(make: Make, args: SimpleNamespace) -> Any:
    """The real object, or :class:`Refused`."""
    name, keywords = make(args)
    try:
        return megatron_class(name)(**keywords)
    except (AssertionError, ValueError, NotImplementedError, RuntimeError) as refusal:
        raise Refused(f"{name}: {refusal}") from refusal


def applies(stage: str, args: SimpleNamespace, line: CommandLine) -> bool:
    """False where the stand-in knows less than TE, or Megatron takes another class."""
    if stage == "optimizer_config":
        return not line.transformer_engine.startswith("1.")  # FusedAdam is that of the installed TE
    return stage != "ddp_config" or not args.use_torch_fsdp2


def arguments(line: CommandLine) -> SimpleNamespace:
    """What Megatron's own checks leave of the line."""
    plan, parsed = megatron_row(line.row())
    return megatron.after_validation(Context(plan).effective, parsed.others)


def errors(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    """``{stage: [rule: message]}`` of everything that the linter refuses."""
    found: dict[str, list[str]] = {}
    for error in answer["errors"]:
        found.setdefault(error["stage"], []).append(f"{error['id']}: {error['message']}")
    return found


def plain(value: Any) -> Any:
    """A field as the linter writes it: names of dtypes and members; what is not set is ``None``."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value] or None
    if str(value).startswith("torch."):
        return str(value).removeprefix("torch.")
    return getattr(value, "name", value) or None


@pytest.fixture(autouse=True)
def no_allocator_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)


@examples(2000)
@given(command_lines())
def test_the_classes_refuse_what_the_linter_refuses(line: CommandLine) -> None:
    answer = lint_row(line.row())
    ours = errors(answer)
    assume("parse" not in ours and "validate" not in ours)
    args = arguments(line)
    with pytest.MonkeyPatch.context() as patch, transformer_engine(line.transformer_engine):
        for name, value in line.env.items():
            patch.setenv(name, value)
        for stage, make in STAGES.items():
            if not applies(stage, args, line):
                continue
            try:
                real = built(make, args)
            except Refused as refusal:
                event(f"{stage} refuses")
                assert stage in ours, f"the linter accepts what megatron-core refuses: {refusal}"
            else:
                event(f"{stage} accepts")
                assert stage not in ours, f"megatron-core accepts it: {ours[stage]}"
                compare_values(stage, real, args, answer["resolved"])


def compare_values(
    stage: str, real: Any, args: SimpleNamespace, resolved: Mapping[str, Any]
) -> None:
    """What the object holds after ``__post_init__`` is what the linter resolved."""
    for owner in owners(stage, args):
        for field, dest in megatron.feeds(owner).items():
            if dest not in resolved or dest in DERIVED:
                continue
            found = plain(getattr(real, field))
            if field == "recompute_modules" and resolved[dest] is None:
                assert found == ["core_attn"]  # the class's own default
            else:
                assert found == plain(resolved[dest]), f"{owner}.{field}"


def owners(stage: str, args: SimpleNamespace) -> tuple[str, ...]:
    """Classes whose fields an object of the stage has."""
    if stage == "transformer_config":
        return megatron.MODEL_OWNERS if args.multi_latent_attention else megatron.MODEL_OWNERS[:2]
    return ("OptimizerConfig" if stage == "optimizer_config" else "DistributedDataParallelConfig",)
