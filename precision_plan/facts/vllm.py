"""vLLM: engine arguments, KV cache and state dtypes, and the names of quantization methods.

Every release from 0.12.0 to 0.33.0 was read, so that a change is dated by the release that brought
it. What is absent before ``since`` was absent in the release before; ``until`` names the minor
release that had a thing last.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import VersionRange, version

COMPARED = ("0.12.0", "0.17.1", "0.22.1", "0.28.0", "0.33.0")
"""The releases whose every table was compared, too, not only the boundaries between them."""

DEFAULT_VERSION = "0.33.0"
"""The release whose arguments are emitted when ``software.vllm`` is not declared."""


class EngineArg(NamedTuple):
    """One engine argument behind a plan field.

    ``kind`` tells how it is written: ``value`` and ``list`` take words, ``boolean`` is the pair
    ``--x`` and ``--no-x``, ``json`` takes a mapping, and ``json_key`` is the entry ``key`` of
    the mapping that the flag takes. ``choices`` and ``default`` are those of the version asked
    for with :meth:`at`; choices of ``None`` mean that any text is parsed. From ``open_since`` on
    other registered names than the choices are taken, too.
    """

    field: str
    flag: str
    kind: Literal["value", "list", "boolean", "json", "json_key"]
    default: Any
    effect: str
    versions: VersionRange
    source: str
    aliases: tuple[str, ...] = ()
    key: str | None = None
    type: str | None = None
    choices: tuple[str, ...] | None = None
    changes: tuple[Mapping[str, Any], ...] = ()
    open_since: str | None = None
    note: str | None = None

    def at(self, vllm: str) -> EngineArg:
        """The argument as it stands at one version."""
        choices, default = self.choices, self.default
        for change in self.changes:
            if version(vllm) >= version(change["since"]):
                choices = change.get("choices", choices)
                default = change.get("default", default)
        return self._replace(choices=choices, default=default)

    def is_open(self, vllm: str) -> bool:
        """True if names that are not among the choices are taken at a version."""
        return self.open_since is not None and version(vllm) >= version(self.open_since)

    def all_choices(self) -> frozenset[str]:
        """The union of the choices over every version."""
        lists = [self.choices or (), *(change.get("choices", ()) for change in self.changes)]
        return frozenset(choice for choices in lists for choice in choices)


class KvDtype(NamedTuple):
    """One value of ``--kv-cache-dtype``.

    ``stored`` names the number format of the codes (``None`` for codebooks and ``auto``) and
    ``bits`` the bits of one code; ``platforms`` are those with a backend that takes it.
    """

    name: str
    stored: str | None
    bits: float | None
    platforms: tuple[str, ...]
    versions: VersionRange
    source: str
    note: str | None = None


class QuantName(NamedTuple):
    """One value of ``--quantization``; ``resolves`` is the name vLLM reports for it.

    ``before`` holds ``resolves`` of older releases and the last of them, where it was another.
    ``rocm`` is the version range in which the ROCm platform takes it, ``None`` if it never does;
    ``deprecated`` the one in which it is refused unless the engine is told to allow it.
    """

    name: str
    resolves: str
    kind: Literal["method", "online"]
    versions: VersionRange
    source: str
    rocm: VersionRange | None = None
    deprecated: VersionRange | None = None
    before: Mapping[str, str] | None = None
    note: str | None = None

    def resolves_at(self, vllm: str | None) -> str:
        """The name that vLLM reports at one version; of the newest for ``None``."""
        if self.before is None or vllm is None:
            return self.resolves
        older = vllm in VersionRange(None, self.before["until"])
        return self.before["resolves"] if older else self.resolves


class StateDtype(NamedTuple):
    """Default and allowed recurrent-state dtypes of one family of hybrid models.

    ``hf_key`` is the key of the checkpoint's ``config.json`` that sets the default; ``default``
    holds where it is absent (``None``: the convolution state's dtype).
    """

    architectures: tuple[str, ...]
    model_types: tuple[str, ...]
    hf_key: str | None
    default: str | None
    allowed: tuple[str, ...] | None
    versions: VersionRange
    source: str
    note: str | None = None


@lru_cache(maxsize=1)
def engine_args() -> Mapping[str, EngineArg]:
    """Every engine argument by plan field (``rollout.kv_cache_dtype``)."""
    rows = table("vllm_engine_args")
    return MappingProxyType({row["field"]: record(EngineArg, row) for row in rows})


@lru_cache(maxsize=16)
def engine_args_at(vllm: str) -> Mapping[str, EngineArg]:
    """The engine arguments that exist at one version, by plan field."""
    present = (arg.at(vllm) for arg in engine_args().values() if vllm in arg.versions)
    return MappingProxyType({arg.field: arg for arg in present})


@lru_cache(maxsize=16)
def absent_flags(vllm: str) -> frozenset[str]:
    """Flags behind plan fields that other releases have and this one has under no name."""
    present = {arg.flag for arg in engine_args_at(vllm).values()}
    gone = (arg for arg in engine_args().values() if vllm not in arg.versions)
    flags = {flag for arg in gone for flag in (arg.flag, *arg.aliases) if arg.kind != "json_key"}
    return frozenset(flags - present)


@lru_cache(maxsize=1)
def kv_dtypes() -> Mapping[str, KvDtype]:
    """Every KV cache dtype by name."""
    return MappingProxyType({row["name"]: record(KvDtype, row) for row in table("vllm_kv_dtypes")})


@lru_cache(maxsize=16)
def kv_cache_dtypes(vllm: str | None) -> tuple[str, ...]:
    """Names that ``--kv-cache-dtype`` takes at one version; of all versions for ``None``."""
    rows = kv_dtypes().values()
    return tuple(row.name for row in rows if vllm is None or vllm in row.versions)


@lru_cache(maxsize=16)
def mamba_dtypes(vllm: str | None) -> tuple[str, ...]:
    """Names that ``--mamba-ssm-cache-dtype`` takes at one version; of the newest for ``None``."""
    return engine_args()["rollout.mamba_ssm_cache_dtype"].at(vllm or "HEAD").choices or ()


@lru_cache(maxsize=1)
def quant_names() -> Mapping[str, QuantName]:
    """Every value that ``--quantization`` takes or took, by name."""
    names = {}
    for row in table("vllm_quant_names"):
        spans = {
            key: VersionRange(*row[key]) if row.get(key) is not None else None
            for key in ("rocm", "deprecated")
        }
        names[row["name"]] = record(QuantName, {**row, **spans})
    return MappingProxyType(names)


class Architecture(NamedTuple):
    """One family of models that vLLM treats apart, by the start of its ``architectures`` name.

    ``recurrent_state`` is True for hybrid and Mamba models; ``float16`` False where vLLM refuses
    that dtype for the ``model_types``.
    """

    prefix: str
    model_types: tuple[str, ...]
    recurrent_state: bool
    float16: bool
    source: str
    note: str | None = None


@lru_cache(maxsize=1)
def architectures() -> tuple[Architecture, ...]:
    """The families that keep a recurrent state, and those without float16."""
    return tuple(record(Architecture, row) for row in table("vllm_architectures"))


@lru_cache(maxsize=1)
def state_dtypes() -> tuple[StateDtype, ...]:
    """Families of hybrid models with their own rule for the recurrent state."""
    return tuple(record(StateDtype, row) for row in table("vllm_state_dtypes"))


def state_dtype_of(architecture: str | None) -> StateDtype | None:
    """The family of an ``architectures`` entry or a ``model_type``; ``None`` if it has none."""
    for row in state_dtypes():
        if architecture in row.architectures or architecture in row.model_types:
            return row
    return None


class KvDefault(NamedTuple):
    """A KV cache dtype that vLLM replaces for some architectures, on a range of capabilities.

    ``needs`` is a key that the model's configuration must have.
    """

    architectures: tuple[str, ...]
    asked: str
    becomes: str
    min_cc: str | None
    below_cc: str | None
    source: str
    needs: str | None = None


@lru_cache(maxsize=1)
def kv_defaults() -> tuple[KvDefault, ...]:
    """Every such replacement."""
    return tuple(record(KvDefault, row) for row in table("vllm_kv_defaults"))


class GoneModel(NamedTuple):
    """An architecture that vLLM implemented up to a release, and does not any more."""

    architecture: str
    versions: VersionRange
    source: str


@lru_cache(maxsize=1)
def gone_models() -> Mapping[str, GoneModel]:
    """By architecture."""
    rows = (record(GoneModel, row) for row in table("vllm_gone_models"))
    return MappingProxyType({row.architecture: row for row in rows})
