"""vLLM: which attention backend takes which KV cache dtype, and MoE kernels by method.

The tables of what a backend takes on a capability are those of 0.33.0, the release whose selection
was run. The names, and what the classes declare, are known for every release since 0.12.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.gpus import parse_capability
from precision_plan.facts.versions import VersionRange

Capability = tuple[int, int]


class Takes(NamedTuple):
    """KV cache dtypes that a backend takes on a half-open range of compute capabilities."""

    kv: frozenset[str]
    min_cc: Capability | None
    below_cc: Capability | None

    def covers(self, compute_capability: Capability | None) -> bool:
        """True if the range holds the capability; an unknown one is in every range."""
        if compute_capability is None:
            return True
        if self.min_cc is not None and compute_capability < self.min_cc:
            return False
        return self.below_cc is None or compute_capability < self.below_cc


class Earlier(NamedTuple):
    """Capabilities that a backend declared up to one release, beyond those it has now."""

    versions: VersionRange
    min_cc: Capability
    source: str


class AttentionBackend(NamedTuple):
    """One attention backend of one platform.

    ``kind`` is the attention it computes: ``dense``, ``mla`` (multi-head latent attention) or
    ``sparse_mla``. ``automatic`` backends are tried when none is named. ``build_min_cc`` gives
    the capability that a KV dtype needs beyond the selection, when the layer is built.
    """

    name: str
    platform: Literal["cuda", "rocm"]
    kind: Literal["dense", "mla", "sparse_mla"]
    automatic: bool
    dtypes: tuple[str, ...]
    takes: tuple[Takes, ...]
    versions: VersionRange
    source: str
    batch_invariant: bool = False
    build_min_cc: Mapping[str, Capability] = MappingProxyType({})
    note: str | None = None
    earlier: tuple[Earlier, ...] = ()

    def ran_on(self, compute_capability: Capability | None, vllm: str | None) -> bool:
        """True if the backend declared the capability at an earlier release, and no longer."""
        if compute_capability is None or self.runs_on(compute_capability):
            return False
        return any(
            compute_capability >= row.min_cc and (vllm is None or vllm in row.versions)
            for row in self.earlier
        )

    def runs_on(self, compute_capability: Capability | None) -> bool:
        """True if the backend exists on the capability for some KV dtype."""
        return any(takes.covers(compute_capability) for takes in self.takes)

    def accepts(self, kv_dtype: str, compute_capability: Capability | None) -> bool:
        """True if the selection lets the KV dtype through on the capability."""
        return any(
            kv_dtype in takes.kv and takes.covers(compute_capability) for takes in self.takes
        )


class BackendName(NamedTuple):
    """One name of vLLM's registry of attention backends.

    ``declares`` lists what its class declares, from which version on: ``dtypes`` and ``kv``, the
    KV cache dtypes. A platform or a capability may take less; what the class works out when it
    is asked is not here (then the list is empty).
    """

    name: str
    versions: VersionRange
    declares: tuple[Mapping[str, Any], ...]
    source: str

    def declared(self, vllm: str, what: Literal["dtypes", "kv"]) -> tuple[str, ...] | None:
        """What the class declares at one version; ``None`` if that is not known."""
        found = None
        for row in self.declares:
            if vllm in VersionRange(row["since"]):
                found = tuple(row[what])
        return found if vllm in self.versions else None


class MoeMethod(NamedTuple):
    """Expert kernels of one quantization method: values of ``--moe-backend``, and EPLB support.

    ``backends`` is ``None`` where the list was not read.
    """

    method: str
    backends: tuple[str, ...] | None
    eplb: bool
    versions: VersionRange
    source: str


def _capability(text: str | None) -> Capability | None:
    return None if text is None else parse_capability(text)


def _backend(row: Mapping[str, Any]) -> AttentionBackend:
    takes = tuple(
        Takes(frozenset(part["kv"]), _capability(part["min_cc"]), _capability(part["below_cc"]))
        for part in row["takes"]
    )
    needs = {kv: parse_capability(cc) for kv, cc in row.get("build_min_cc", {}).items()}
    earlier = tuple(
        Earlier(VersionRange(None, part["until"]), parse_capability(part["min_cc"]), part["source"])
        for part in row.get("earlier", ())
    )
    converted = {"takes": takes, "build_min_cc": MappingProxyType(needs), "earlier": earlier}
    return record(AttentionBackend, {**row, **converted})


@lru_cache(maxsize=1)
def attention_backends() -> tuple[AttentionBackend, ...]:
    """Every backend; a name may stand once per platform."""
    return tuple(_backend(row) for row in table("vllm_attention_backends"))


@lru_cache(maxsize=256)
def attention_backend(name: str, platform: str) -> AttentionBackend | None:
    """One backend by its name, in any case; ``None`` if the catalogue does not have it."""
    for row in attention_backends():
        if row.name == name.upper() and row.platform == platform:
            return row
    return None


@lru_cache(maxsize=1)
def backend_names() -> Mapping[str, BackendName]:
    """Every name of the registry of attention backends."""
    rows = table("vllm_backend_names")
    return MappingProxyType({row["name"]: record(BackendName, row) for row in rows})


@lru_cache(maxsize=1)
def moe_methods() -> Mapping[str, MoeMethod]:
    """Expert kernels by the method that vLLM reports."""
    return MappingProxyType({row["method"]: record(MoeMethod, row) for row in table("vllm_moe")})
