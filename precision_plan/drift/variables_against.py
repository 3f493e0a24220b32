"""Environment variables in the sources against those of the facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from precision_plan.drift.changes import Change, about_precision
from precision_plan.drift.source import VLLM, Package
from precision_plan.drift.variables import Environment, Variable
from precision_plan.facts.env_vars import EnvVar, env_vars
from precision_plan.facts.vllm_env_names import vllm_env_names

_OURS = ("NVTE_", "NVFP4_", "MXFP8_", "CUBLAS", "CUDA_GRAPH")
_PYTHON = re.compile(r"(?:^|[:/])([\w/.-]+\.py)\b")
_NATIVE = re.compile(r"\.(?:cpp|cu|cuh|h|so|rst)\b")
_SIMPLE = re.compile(r"\S*")


def is_precise(name: str) -> bool:
    """Variables of Transformer Engine and cuBLAS, and those that speak of number formats."""
    return name.startswith(_OURS) or about_precision(name)


@dataclass(slots=True)
class VariablesCompared:
    """Changes, and what they do not speak of.

    ``looked_for`` counts the variables of the facts that were looked for, ``untold`` names those
    that the sources at hand cannot tell about (their reader is not among them), ``others`` those
    of the sources that the facts do not cover.
    """

    changes: list[Change] = field(default_factory=list)
    looked_for: int = 0
    untold: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def compare_variables(
    found: Environment,
    package: Package,
    package_version: str,
    paths: Iterable[str],
    listed: frozenset[str] = frozenset(),
) -> VariablesCompared:
    """Variables that appeared, vanished or have another default.

    Args:
        listed: further names that the facts have at this version, without what they do.
    """
    result = VariablesCompared()
    folders = frozenset(map(_part, paths))
    for known in env_vars().values():
        if package.name not in known.read_by or known.platforms is not None:
            continue
        if not known.exists_in(package.name, package_version):
            continue
        variable = found.variables.get(known.name)
        if variable is not None and (variable.reads or variable.writes):
            result.looked_for += 1
            if known.read_by[0] == package.name:  # the default of a row is its first reader's
                result.changes.extend(_changed(known, variable, default_at(known, package_version)))
        elif known.name in found.quoted:
            result.looked_for += 1
        elif _readable(known, package, folders, found):
            result.looked_for += 1
            result.changes.append(
                Change(
                    "vanished",
                    "variable",
                    known.name,
                    is_precise(known.name),
                    fact_source=known.source,
                )
            )
        else:
            result.untold.append(known.name)
    for change in _appeared(found, package, package_version):
        if change.name in listed:
            continue
        told = found.variables[change.name].reads or change.name.startswith(_OURS)
        if (change.precise and told) or change.note:  # what is only set concerns another program
            result.changes.append(change)
        else:
            result.others.append(change.name)
    return result


def default_at(known: EnvVar, package_version: str) -> str | None:
    """The default at a version, where it changed; that of a list is not the text of its source."""
    if known.type is not None and known.type.startswith("list"):
        return None
    if known.read_by[0] == VLLM.name:
        for run in vllm_env_names().get(known.name, ()):
            if package_version in run.versions and run.defaults:
                return run.default_at(package_version)
    return known.default


def _changed(known: EnvVar, variable: Variable, default: str | None) -> Iterator[Change]:
    """Only one literal default on either side can be compared."""
    if default is None or not _SIMPLE.fullmatch(default):
        return
    if len(variable.defaults) == 1 and default not in variable.defaults:
        theirs = next(iter(variable.defaults))
        if theirs == "None" or theirs.startswith("computed"):
            return
        yield Change(
            "changed",
            "variable",
            known.name,
            is_precise(known.name),
            aspect="default",
            facts=default,
            sources=theirs,
            at=variable.reads[0],
            fact_source=known.source,
        )


def _readable(known: EnvVar, package: Package, folders: frozenset[str], found: Environment) -> bool:
    """Whether the reader that the fact cites would stand in these sources.

    If the fact cites compiled code, its source must be here; a part of the package that these
    sources leave out (``megatron/training`` in a wheel) tells nothing.
    """
    if _NATIVE.search(known.source) and not found.has_native:
        return False
    cited = [path for path in _PYTHON.findall(known.source) if path.startswith(package.folder)]
    return not cited or any(_part(path) in folders for path in cited)


def _part(path: str) -> str:
    """The first two folders of a path: ``megatron/training``."""
    return "/".join(path.split("/")[:2])


def _appeared(found: Environment, package: Package, package_version: str) -> Iterator[Change]:
    for variable in sorted(found.variables.values(), key=lambda item: item.name):
        known = env_vars().get(variable.name)
        if known is not None:
            if package.name not in known.read_by or known.exists_in(package.name, package_version):
                continue
            span = known.versions[package.name]
            note = f"in the facts for {package.distribution} {span}, not for {package_version}"
        else:
            note = None
        yield Change(
            "appeared",
            "variable",
            variable.name,
            is_precise(variable.name),
            sources=_described(variable),
            at=(variable.reads or variable.writes)[0],
            note=note,
        )


def _described(variable: Variable) -> str:
    uses = [f"read {len(variable.reads)}x"] if variable.reads else []
    uses += [f"set {len(variable.writes)}x"] if variable.writes else []
    if variable.defaults:
        uses.append(f"default {' or '.join(sorted(variable.defaults))}")
    return ", ".join(uses)
