"""Every rule as a page: those of the registry, and the PP0xx that are found while composing."""

from __future__ import annotations

import re

from precision_plan.plan.codes import CODES, Code
from precision_plan.render._pages import Page
from precision_plan.rules.base import Rule, Scope
from precision_plan.rules.registry import rules

_SECTION = re.compile(r"^(Why|Bad|Good):\n((?:(?:    .*)?\n)+)", re.MULTILINE)

_STAGES = {
    "compose": "this program, while it reads the recipe",
    "parse": "Megatron's argument parser",
    "validate": "Megatron's `validate_args`",
    "transformer_config": "`TransformerConfig` of megatron-core",
    "ddp_config": "`DistributedDataParallelConfig` of megatron-core",
    "optimizer_config": "`OptimizerConfig` of megatron-core",
    "te_recipe": "Transformer Engine, when the recipe is built",
    "te_hardware": "Transformer Engine's check of the GPU",
    "fused_adam": "the constructor of Transformer Engine's FusedAdam",
    "engine_config": "vLLM's engine configuration",
    "attention_backend": "vLLM, when it chooses an attention backend",
    "worker": "vLLM's workers, while they build layers and load weights",
    "build": "the program, while the model or optimizer is built",
    "run": "nobody at the start: it fails or trains something else later",
    "policy": "nobody: this is a rule of this project",
}


def pages() -> tuple[Page, ...]:
    """All pages in order of their id."""
    found = [_code_page(code) for code in CODES.values()]
    found += [rule_page(rule) for rule in rules().values()]
    return tuple(sorted(found, key=lambda page: page.id))


def rule_page(rule: Rule) -> Page:
    """The page of one rule, from its docstring and metadata."""
    sections = {
        heading: "\n".join(line[4:] for line in text.rstrip().splitlines())
        for heading, text in _SECTION.findall(rule.page + "\n")
    }
    scope = [
        ("noticed by", _STAGES[rule.stage]),
        *_scope(rule.scope),
        ("fix", _fix(rule.fixable)),
        ("since", rule.since),
    ]
    return Page(
        rule.id, rule.slug, rule.severity, rule.summary, sections, tuple(scope), rule.source
    )


def _fix(fixable: bool) -> str:
    if fixable:
        return "safe where it cannot change what is trained or served: `lint --fix` applies it"
    return "for a person to choose: `lint --fix` leaves it"


def _scope(scope: Scope) -> list[tuple[str, str]]:
    lines = [("frameworks", ", ".join(scope.frameworks) or "all")]
    lines += [(f"{package} versions", str(span)) for package, span in scope.versions.items()]
    lines.append(("hardware", scope.hardware))
    if scope.needs:
        lines.append(("must be declared", ", ".join(map(need_field, scope.needs))))
    return lines


def need_field(need: str) -> str:
    """The plan field that answers a need of a rule's scope."""
    if need == "env":
        return "env"
    return "hardware.gpu" if need == "gpu" else f"software.{need}"


def _code_page(code: Code) -> Page:
    scope = [("noticed by", _STAGES["compose"])]
    if code.broken:
        scope.append(("exit code", "2: the input could not be read"))
    scope.append(("fix", _fix(code.fixable)))
    return Page(code.id, code.slug, code.severity, code.summary, {"Why": code.why}, tuple(scope))
