"""What a person reads: the plan as tables, findings with their reasons, one closing line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from precision_plan.plan import Target
from precision_plan.render._closing import count, counts, notes, summary, unchecked
from precision_plan.render._findings import finding, setting
from precision_plan.render._layout import Style, hanging, printable, table, wrap
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Item, Lowering, PrecisionPlan
    from precision_plan.plan.compiled import Compiled, LintReport, Preflight
    from precision_plan.plan.layer_map import ModuleFormat

_LABEL = 15  # the column in which the header's values start


def plan(compiled: Compiled, *, width: int = 80, color: bool = False) -> str:
    """The whole dry run: header, tensor roles, lowered settings with reasons, findings."""
    style = Style(color)
    mask = Mask.of(compiled.plan, compiled.lowering)
    blocks = [_header(compiled, mask, width, style)]
    if compiled.lowering is not None:
        blocks += _lowering(compiled.lowering, compiled.plan, mask, width, style)
    blocks += [finding(found, mask, width, style) for found in compiled.diagnostics]
    closing = _notes(unchecked(compiled.unchecked), width, style)
    closing.append(summary(compiled.diagnostics, (count(compiled.rules_checked, "rule"),),
                           compiled.seconds, style))  # fmt: skip
    blocks.append(closing)
    return _join(blocks)


def lint(report: LintReport, *, width: int = 80, color: bool = False) -> str:
    """Findings over any number of files, errors first, and one closing line."""
    style, mask = Style(color), Mask()
    blocks = [finding(found, mask, width, style) for found in report.diagnostics]
    closing = _notes(notes(report), width, style)
    closing.append(summary(report.diagnostics, counts(report), report.seconds, style))
    if report.fixes is not None:
        from precision_plan.render._fixes import fix_diff, fix_lines

        blocks.append(fix_lines(report.fixes, width, style))
        blocks.append([printable(line) for line in fix_diff(report.fixes).splitlines()])
    blocks.append(closing)
    return _join(blocks)


def preflight(report: Preflight, *, width: int = 80, color: bool = False) -> str:
    """What was seen and what was not, then the findings that rest on it."""
    style, mask = Style(color), Mask()
    rows = [(field, _safe(mask, words)) for field, words in report.seen.items()]
    sizes = {
        "legal tensor parallel sizes": report.legal_tensor_parallel_sizes,
        "... with expert parallelism": report.legal_expert_parallel_sizes,
    }
    for label, legal in sizes.items():
        if legal is not None:
            rows.append((label, ", ".join(map(str, legal)) or "none"))
    rows += [(name, "unknown: not looked at") for name in report.unseen]
    blocks = [[style("title", printable(report.name)), *table(rows, (32,), width, indent=2)]]
    blocks += [finding(found, mask, width, style) for found in report.diagnostics]
    closing = _notes(unchecked(report.unchecked), width, style)
    rules = (count(report.rules_checked, "rule"),)
    blocks.append([*closing, summary(report.diagnostics, rules, report.seconds, style)])
    return _join(blocks)


def _notes(sentences: Iterable[str], width: int, style: Style) -> list[str]:
    return [style("dim", line) for text in sentences for line in wrap(text, width)]


def _join(blocks: Iterable[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


# Header ---------------------------------------------------------------------------------------
def _header(compiled: Compiled, mask: Mask, width: int, style: Style) -> list[str]:
    info = compiled.plan.recipe
    name = printable(mask.text(compiled.name))
    lines = hanging(name, _safe(mask, info.title or ""), width, indent=len(name) + 2,
                    painted=style("title", name))  # fmt: skip
    if compiled.lowering is None:
        return [line.rstrip() for line in lines]
    origin = compiled.plan.origin("recipe")
    facts = (
        ("recipe", origin.file if origin.layer == "recipe" else None),
        ("maturity", info.maturity),
        ("target", _target(compiled.plan)),
        ("fingerprint", compiled.fingerprint[:16]),
    )
    for label, value in facts:
        if value:
            lines += hanging(f"  {label}", _safe(mask, value), width, indent=_LABEL,
                             painted=style("dim", f"  {label}"))  # fmt: skip
    return [line.rstrip() for line in lines]


def _target(plan: PrecisionPlan) -> str:
    target, hardware = Target.of(plan), plan.hardware
    words = []
    if target.compute_capability is not None:
        capability = "compute capability {}.{}".format(*target.compute_capability)
        words.append(f"{target.gpu} ({capability})" if target.gpu else capability)
    elif target.gpu is not None:
        words.append(f"{target.gpu} ({target.gfx})" if target.gfx else target.gpu)
    else:
        words.append("GPU not declared")
    if hardware.nodes is not None and hardware.gpus_per_node is not None:
        words.append(f"{count(hardware.nodes, 'node')} x {hardware.gpus_per_node} GPUs")
    words.append(target.framework or "framework not declared")
    words += [f"{package} {version}" for package, version in target.versions]
    return ", ".join(words)


def _safe(mask: Mask, text: str) -> str:
    return printable(mask.text(text))


# Lowering -------------------------------------------------------------------------------------
def _lowering(
    lowering: Lowering, plan: PrecisionPlan, mask: Mask, width: int, style: Style
) -> list[list[str]]:
    blocks = [_roles(lowering, mask, width, style), _layers(lowering, plan, mask, width, style)]
    recipe = lowering.transformer_engine.recipe
    targets = (
        ("Megatron", lowering.megatron.items),
        (f"Transformer Engine: {recipe or 'no recipe'}", lowering.transformer_engine.items),
        ("Ray", lowering.ray.items),
        ("vLLM", lowering.vllm.items),
        ("Checkpoint", lowering.checkpoint.items),
    )
    for title, items in targets:
        if items:
            rows = [_item(item, plan, mask) for item in items]
            limit = max(width * 57 // 100, 24)
            blocks.append([style("title", title), *table(rows, (limit,), width, indent=2)])
    return blocks


def _roles(lowering: Lowering, mask: Mask, width: int, style: Style) -> list[str]:
    if not lowering.roles:
        return []
    rows = [("role", "dtype", "bytes", "where it comes from")]
    rows += [
        (
            role.name,
            _safe(mask, role.dtype),
            "?" if role.bytes_per_element is None else f"{role.bytes_per_element:.6g}",
            _safe(mask, role.origin),
        )
        for role in lowering.roles
    ]
    lines = table(rows, (26, 24, 7), width, indent=2)
    return [style("title", "Tensors (bytes per element)"), style("dim", lines[0]), *lines[1:]]


def _layers(
    lowering: Lowering, plan: PrecisionPlan, mask: Mask, width: int, style: Style
) -> list[str]:
    """Which layers and modules compute in what; nothing where all of them are alike."""
    if len({(row.resolved.format, row.resolved.evaluation) for row in lowering.layers}) < 2:
        return []
    rows = [("layers", "modules", "format", "what decides")]
    for row in lowering.layers:
        last = "" if row.first == row.last else f" to {row.last}"
        block = "" if row.block == "decoder" else f"{row.block} "
        rows.append(
            (
                f"{block}{row.first}{last}",
                _safe(mask, ", ".join(row.modules) or "all"),
                _format(row.resolved),
                _safe(mask, _decides(row.resolved, plan)),
            )
        )
    lines = table(rows, (12, 30, 22), width, indent=2)
    return [style("title", "Layers (from 0)"), style("dim", lines[0]), *lines[1:]]


def _format(resolved: ModuleFormat) -> str:
    training, evaluation = resolved.format or "unknown", resolved.evaluation or "unknown"
    return training if training == evaluation else f"{training}, {evaluation} in evaluation"


def _decides(resolved: ModuleFormat, plan: PrecisionPlan) -> str:
    if resolved.field is None:
        return resolved.because
    origin = plan.origin(resolved.field)
    where = f"{origin.layer}:{origin.line}" if origin.line else origin.layer
    return f"{resolved.because}  {where}".rstrip()


def _item(item: Item, plan: PrecisionPlan, mask: Mask) -> tuple[str, str]:
    value = mask.named(item.name, item.value)
    shown = item.name if value is True else f"{item.name} {setting(value)}"
    return printable(shown), _safe(mask, _because(item, plan))


def _because(item: Item, plan: PrecisionPlan) -> str:
    """Who asked for an item: the layer and line that set its field, else the reason in words."""
    reason = item.reason
    if reason.field is None:
        return reason.text
    origin = plan.origin(reason.field)
    where = f"{origin.layer}:{origin.line}" if origin.line else origin.layer
    name = reason.field.rpartition(".")[2]
    if (
        where
        and _as_option(name) == _as_option(item.name.lstrip("-"))
        and reason.text.startswith(reason.field)
    ):
        return where  # the flag is spelt like the field: repeating it says nothing
    return f"{reason.text}  {where}".rstrip()


def _as_option(name: str) -> str:
    return name.replace("_", "-")
