"""Environment variables: who reads them, in which process, when, and what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from precision_plan.facts._load import record, table
from precision_plan.facts.versions import EVERY_VERSION, VersionRange
from precision_plan.facts.vllm_env_names import vllm_span

ROLES = ("driver", "train_actor", "rollout_engine", "vllm_worker", "converter")
"""Process roles, in the spelling of the plan's ``env`` section."""


class EnvVar(NamedTuple):
    """One variable.

    ``values`` lists the accepted texts (``None``: any text of ``type``), ``default`` what the
    reader assumes when the variable is unset. ``read`` is the moment of the read: ``import`` of
    the package, ``call`` of the code concerned, or ``start`` of the process; a variable that is
    read at import must be in the environment before the process starts. ``versions`` gives the
    version range per package; a package that is absent reads it in every known version.
    ``exclusive`` says in words what the variable needs, forbids or is overruled by. ``also``
    names the further roles that read it in one framework.
    """

    name: str
    read_by: tuple[str, ...]
    roles: tuple[str, ...]
    read: Literal["import", "call", "start"]
    meaning: str
    source: str
    values: tuple[str, ...] | None = None
    type: str | None = None
    default: str | None = None
    versions: Mapping[str, VersionRange] = MappingProxyType({})
    exclusive: tuple[str, ...] = ()
    platforms: tuple[str, ...] | None = None
    also: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def roles_in(self, framework: str | None) -> frozenset[str]:
        """The roles that read the variable in a framework; any framework's if it is unknown."""
        further = self.also.values() if framework is None else [self.also.get(framework, ())]
        return frozenset(self.roles).union(*further)

    def accepts(self, value: str) -> bool:
        """True unless the accepted values are listed and ``value`` is none of them."""
        return self.values is None or value in self.values

    def exists_in(self, package: str, package_version: str | None) -> bool | None:
        """Whether one package version reads the variable; ``None`` if its version is unknown."""
        allowed = self.versions.get(package, EVERY_VERSION)
        if allowed.is_open:
            return True
        return None if package_version is None else package_version in allowed


class DeadName(NamedTuple):
    """A name that people set and nothing reads.

    ``inert`` names never worked; ``removed`` ones are gone from ``package`` in ``versions``.
    ``use`` is what to write instead, ``None`` if there is nothing. ``harmless``: that is another
    variable, and to write it changes nothing that is computed.
    """

    name: str
    status: Literal["inert", "removed", "renamed"]
    use: str | None
    source: str
    package: str | None = None
    versions: VersionRange = EVERY_VERSION
    note: str | None = None
    harmless: bool = False


def _env_var(row: Mapping[str, Any]) -> EnvVar:
    versions = {package: VersionRange(*span) for package, span in row.get("versions", {}).items()}
    if "vllm" in row["read_by"] and "vllm" not in versions:
        span = vllm_span(row["name"])
        if span is not None:
            versions["vllm"] = span
    return record(EnvVar, {**row, "versions": MappingProxyType(versions)})


@lru_cache(maxsize=1)
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return {row["name"]: row for row in table("env_vars")}


@lru_cache(maxsize=1)
def env_vars() -> Mapping[str, EnvVar]:
    """Every known variable by name."""
    return MappingProxyType({name: _env_var(row) for name, row in _rows().items()})


@lru_cache(maxsize=512)
def env_var(name: str) -> EnvVar | None:
    """One variable, built alone: cheaper than :func:`env_vars` when few are asked for."""
    row = _rows().get(name)
    return None if row is None else _env_var(row)


@lru_cache(maxsize=1)
def dead_names() -> Mapping[str, DeadName]:
    """Renamed, removed and inert variables by name."""
    return MappingProxyType({row["name"]: record(DeadName, row) for row in table("env_dead_names")})


_SECRET_WORDS = frozenset(
    {"KEY", "APIKEY", "ACCESSKEY", "SECRETKEY", "TOKEN", "AUTHTOKEN", "SECRET", "SECRETS"}
    | {"PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"}
)
_COUNTED = frozenset({"PER", "MAX", "MIN", "NUM", "EACH"})
_COLUMNS = frozenset({"METADATA", "INPUT", "LABEL"})
"""What is looked up by a key: ``IMAGE_METADATA_KEY`` is the name of a column."""


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """True if the value of ``name`` must not be printed.

    Judged by the words of the name (``HF_TOKEN``, ``WANDB_API_KEY``, ``db_password``). Variables
    of the catalogue and counts (``MAX_TOKENS``, ``PER_TOKEN_ACTIVATION``) are not secret.
    """
    if name in _rows() or name.startswith("NVTE_"):
        return False
    words = [word.rstrip("0123456789") for word in re.split(r"[^A-Z0-9]+", name.upper())]
    return any(
        word in _SECRET_WORDS
        and not (index and words[index - 1] in _COUNTED)
        and not (index and word == "KEY" and words[index - 1] in _COLUMNS)
        for index, word in enumerate(words)
    )
