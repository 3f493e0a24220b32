"""More rows for the cards of vLLM arguments whose values differ by version, GPU and backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from precision_plan.facts.frameworks import RL_FRAMEWORKS, engine_passthrough
from precision_plan.facts.vllm import KvDtype, kv_defaults, kv_dtypes, state_dtypes
from precision_plan.facts.vllm_backends import attention_backends
from precision_plan.facts.vllm_selection import (
    Attention,
    Capability,
    Selectable,
    backend_names,
    every_selectable,
    selection_order,
)

Rows = Iterator[tuple[str, str]]
_CAPABILITIES = ((8, 0), (9, 0), (10, 0), (12, 0))
_NO_END = (99, 0)
_KINDS: tuple[tuple[Attention, str], ...] = (("dense", "attention"), ("mla", "latent attention"))


def value_rows(field: str) -> Rows:
    """Rows about the values of one argument; none for arguments without a table of their own."""
    rows = _ROWS.get(field)
    if rows is not None:
        yield from rows()
        yield from _passed_on(field)


def _kv_rows() -> Rows:
    for name, row in kv_dtypes().items():
        yield name, "; ".join(_kv_facts(row))
    for default in kv_defaults():
        models = ", ".join(default.architectures)
        where = f" from {default.min_cc} below {default.below_cc}" if default.min_cc else ""
        yield "replaced", f"{default.asked} becomes {default.becomes} for {models}{where}"
    yield (
        "overridden by",
        "a ModelOpt checkpoint that names a KV cache (kv_cache_quant_algo, kv_cache_scheme) where "
        "the argument is auto; layers of --kv-cache-dtype-skip-layers keep the model's dtype",
    )


def _kv_facts(row: KvDtype) -> Iterator[str]:
    yield str(row.versions)
    if row.bits is not None:
        yield f"{row.bits:g} bits"
    yield "on " + (", ".join(row.platforms) or "no platform that was looked at")
    served: dict[str, list[Selectable]] = {}
    for each in every_selectable():
        if row.name in each.kv and _of_cuda(each):
            served.setdefault(each.name, []).append(each)
    if served:
        yield "CUDA backends of 0.33: " + ", ".join(
            f"{name} {_spans(rows)}" for name, rows in served.items()
        )
    built = [
        f"{each.name} from {least[0]}.{least[1]}"
        for each in attention_backends()
        if each.platform == "cuda" and (least := each.build_min_cc.get(row.name)) is not None
    ]
    if built:
        yield "though its layers are built by " + ", ".join(built)
    if row.note:
        yield row.note


def _of_cuda(row: Selectable) -> bool:
    return any(
        row.name in selection_order(kind, capability)
        for kind in ("dense", "mla")
        for capability in _CAPABILITIES
    )


def _spans(rows: list[Selectable]) -> str:
    """The ranges of one backend, those that touch as one."""
    spans = sorted((row.min_cc or (0, 0), row.below_cc or _NO_END) for row in rows)
    joined = spans[:1]
    for least, below in spans[1:]:
        if least == joined[-1][1]:
            joined[-1] = (joined[-1][0], below)
        else:
            joined.append((least, below))
    return " and ".join(f"({_span(*span)})" for span in joined)


def _span(least: Capability, below: Capability) -> str:
    first = f"{least[0]}.{least[1]}"
    if below == _NO_END:
        return f"{first} and later" if least > (0, 0) else "every GPU"
    return f"{first} to below {below[0]}.{below[1]}"


def _backend_rows() -> Rows:
    for kind, meaning in _KINDS:
        for capability in _CAPABILITIES:
            order = ", ".join(selection_order(kind, capability))
            yield f"on {capability[0]}.{capability[1]}", f"{meaning}: tried in the order {order}"
    yield "takes", ", ".join(sorted(backend_names()))


def _state_rows() -> Rows:
    for row in state_dtypes():
        models = ", ".join(row.architectures)
        default = f"{row.hf_key} of config.json, else " if row.hf_key else ""
        yield "auto is", f"{default}{row.default or 'float32'} for {models}"
    yield "auto is", "the dtype of --mamba-cache-dtype for other models"


def _passed_on(field: str) -> Rows:
    name = field.rpartition(".")[2]
    for framework in RL_FRAMEWORKS:
        passthrough = engine_passthrough(framework)
        if passthrough is None or passthrough.engine != "vllm":
            continue
        flag = passthrough.prefix + name.replace("_", "-")
        if name in passthrough.dropped:
            yield framework, f"does not register {flag}: it vanishes without a message"
        else:
            yield framework, f"passes it on as {flag}"


_ROWS: Mapping[str, Callable[[], Rows]] = {
    "rollout.kv_cache_dtype": _kv_rows,
    "rollout.attention_backend": _backend_rows,
    "rollout.mamba_ssm_cache_dtype": _state_rows,
}
