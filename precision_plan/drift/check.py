"""The comparison of one package: open its sources, read them, hold them against the facts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from packaging.version import InvalidVersion, Version

from precision_plan.drift.changes import Change, Gap, Report
from precision_plan.drift.config_against import (
    Configs,
    compare_configs,
    compare_generated,
    read_configs,
)
from precision_plan.drift.dataclass_fields import FieldReader
from precision_plan.drift.flags_against import (
    compare_flags,
    conditional,
    is_export_flag,
    known_flags,
)
from precision_plan.drift.group_factory import FACTORY, FACTORY_FILE, KNOWN_DIGEST, factory_digest
from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.parser_functions import FlagReader
from precision_plan.drift.recipes import read_recipes
from precision_plan.drift.recipes_against import compare_recipes
from precision_plan.drift.source import (
    MEGATRON,
    TRANSFORMER_ENGINE,
    VLLM,
    Package,
    SourceError,
    SourceTree,
    open_tree,
)
from precision_plan.drift.values import Values
from precision_plan.drift.variables import Environment, read_environment
from precision_plan.drift.variables_against import compare_variables
from precision_plan.drift.vllm_against import (
    Compared,
    compare_backends,
    compare_choices,
    compare_float16,
    compare_methods,
)
from precision_plan.drift.vllm_classes import (
    FLOAT16_FILE,
    float16_refused,
    read_backends,
    read_methods,
)
from precision_plan.drift.vllm_environment import compare_declared, declared_variables
from precision_plan.drift.vllm_flags_against import compare_arguments
from precision_plan.drift.vllm_models import compare_models, read_models
from precision_plan.drift.vllm_parser import ENGINE_FILE, ParserReader
from precision_plan.drift.vllm_schemes import compare_schemes, read_schemes
from precision_plan.facts.versions import UnknownVersion, version
from precision_plan.facts.vllm_env_names import declared_names

_PARSER = ("megatron/training/arguments.py", "add_megatron_arguments")
_EXPORT_PARSER = ("megatron/post_training/arguments.py", "add_modelopt_args")
# Another framework, copies of other packages, building from source.
_WITHOUT = ("transformer_engine/jax/", "vllm/third_party/", "/setup.py")
_GENERATES_SINCE = "0.16.0"


class _Check:
    """What the comparisons of all packages share."""

    def __init__(self, package: Package, where: str, facts_version: str | None) -> None:
        self.package = package
        self.tree = open_tree(package, where)
        self.modules = Modules(self.tree)
        self.values = Values(self.modules)
        self.found = _found_version(package, self.tree, self.modules, self.values)
        self.facts = facts_version or _comparable(package, self.found)
        try:
            version(self.facts)
        except UnknownVersion as error:
            raise SourceError(str(error), "for example --version 0.16.1") from error
        self.changes: list[Change] = []
        self.compared: list[tuple[str, int]] = []
        self.gaps: list[Gap] = []

    def variables(self) -> Environment:
        """Compare the environment variables."""
        found = read_environment(self.modules, self.values, self.package.folder, _WITHOUT)
        listed = declared_names(self.facts) if self.package is VLLM else frozenset()
        paths = self.tree.paths
        result = compare_variables(found, self.package, self.facts, paths, listed)
        self.changes += result.changes
        self.compared.append(("variables", result.looked_for))
        for names, what in (
            (result.untold, "whose readers are not among these sources"),
            (result.others, "that these sources use and the facts do not cover"),
        ):
            if names:
                self.gaps.append(Gap(f"variables {what}", tuple(names)))
        if found.unnamed:
            what = "reads of variables whose names are built at run time"
            self.gaps.append(Gap(what, tuple(found.unnamed)))
        return found

    def add(self, what: str, compared: Compared | None) -> None:
        """Take in one comparison; ``None`` if the sources have nothing to compare."""
        if not compared:
            self.gaps.append(Gap(f"{what}: these sources have none that can be read"))
            return
        self.changes += compared.changes
        self.compared.append((what, compared.count))
        self.gaps += compared.gaps

    def report(self) -> Report:
        """Everything found so far."""
        for path, why in sorted(self.modules.unreadable.items()):
            self.gaps.append(Gap(f"{path}: not parsed ({why})"))
        return Report(
            self.package.name,
            self.tree.label,
            self.found,
            self.facts,
            tuple(self.changes),
            tuple(self.compared),
            tuple(self.gaps),
        )


def check_megatron(where: str, facts_version: str | None = None) -> Report:
    """Compare flags, configuration fields and variables of megatron-core or Megatron-LM.

    Args:
        where: ``installed``, a folder or an archive.
        facts_version: the version of the facts to compare with, if not the one found.

    Raises:
        SourceError: if the sources cannot be read or do not tell their version.
    """
    check = _Check(MEGATRON, where, facts_version)
    fields = FieldReader(check.modules, check.values)
    configs = read_configs(check.modules, fields, check.facts)
    dests: set[str] = set()
    if _PARSER[0] in check.tree:
        dests = _flags(check, fields)
    else:
        _generated_flags(check, configs)
    check.changes += compare_configs(configs, check.facts, dests)
    check.compared.append(("config fields", sum(map(len, configs.values()))))
    check.variables()
    return check.report()


def _flags(check: _Check, fields: FieldReader) -> set[str]:
    """Compare the parsers' flags; returns the names that they have in the parsed namespace."""
    reader = FlagReader(check.modules, check.values, fields)
    known = known_flags(check.facts)
    main = _function(check.modules, *_PARSER)
    if main is None:
        path, function = _PARSER
        why = check.modules.unreadable.get(path, f"there is no function {function} in it")
        raise SourceError(f"{check.tree.label}: {path} cannot be read", why)
    reader.read(main)
    export = _function(check.modules, *_EXPORT_PARSER)
    if export is not None:
        reader.read(export)
    else:
        missing = tuple(flag.flags[0] for flag in known if is_export_flag(flag))
        known = [flag for flag in known if not is_export_flag(flag)]
        check.gaps.append(Gap(f"flags: these sources have no {_EXPORT_PARSER[0]}", missing))
    optional, certain = conditional(compare_flags(reader.flags, known, check.facts))
    check.changes += certain
    check.changes += _factory(check.modules)
    check.compared.append(("flags", len(reader.flags)))
    check.gaps += optional
    if reader.unread:
        what = "arguments whose names or options are built at run time"
        check.gaps.append(Gap(what, tuple(item.source for item in reader.unread)))
    return {flag.dest for flag in reader.flags}


def _function(modules: Modules, path: str, name: str) -> Found | None:
    module = modules.at(path)
    found = modules.find(name, Scope(module)) if module else None
    return found if isinstance(found, Found) else None


def _generated_flags(check: _Check, configs: Configs) -> None:
    """Compare the flags that a tree without the parser tells of: those made from its classes."""
    known = known_flags(check.facts)
    generated: dict[str, list[Change]] = {}
    if version(check.facts) >= version(_GENERATES_SINCE):
        generated = dict(compare_generated(configs, check.values, check.facts))
        check.changes += [change for changes in generated.values() for change in changes]
        check.compared.append(("flags", len(generated)))
    missing = tuple(flag.flags[0] for flag in known if flag.flags[0] not in generated)
    check.gaps.append(Gap(f"flags: these sources have no {_PARSER[0]}", missing))


def _factory(modules: Modules) -> Iterator[Change]:
    digest = factory_digest(modules)
    if digest is not None and digest != KNOWN_DIGEST:
        yield Change(
            "changed",
            "parser rules",
            FACTORY,
            True,
            aspect="code",
            facts=KNOWN_DIGEST,
            sources=digest,
            at=FACTORY_FILE,
            note="how flags are made from dataclasses may differ: read it, then update drift/"
            "group_factory.py",
        )


def check_transformer_engine(where: str, facts_version: str | None = None) -> Report:
    """Compare recipe classes and variables of Transformer Engine.

    Raises:
        SourceError: if the sources cannot be read or do not tell their version.
    """
    check = _Check(TRANSFORMER_ENGINE, where, facts_version)
    recipes = read_recipes(check.modules, check.values)
    if recipes is None:
        raise SourceError(
            f"{check.tree.label}: {TRANSFORMER_ENGINE.anchor} cannot be parsed",
            "; ".join(check.modules.unreadable.values()),
        )
    check.changes += compare_recipes(recipes, check.facts)
    check.compared.append(("recipe fields", sum(len(recipe.fields) for recipe in recipes)))
    found = check.variables()
    if not found.has_native:
        check.gaps.append(Gap("variables of C++ code: these sources have none"))
    return check.report()


def check_vllm(where: str, facts_version: str | None = None) -> Report:
    """Compare arguments, lists of choices, methods, attention backends and variables of vLLM.

    Raises:
        SourceError: if the sources cannot be read or do not tell their version.
    """
    check = _Check(VLLM, where, facts_version)
    _arguments(check)
    changes, lists, absent = compare_choices(check.modules, check.values, check.facts)
    check.changes += changes
    check.compared.append(("lists of choices", lists))
    if absent:
        check.gaps.append(Gap("lists of choices that these sources do not declare", tuple(absent)))
    methods = read_methods(check.modules, check.values)
    check.add("methods", compare_methods(methods, check.facts) if methods else None)
    schemes = read_schemes(check.modules, check.values)
    check.add("schemes", compare_schemes(schemes, check.facts) if schemes else None)
    backends = read_backends(check.modules, check.values)
    compared = compare_backends(backends, check.facts) if backends else None
    check.add("attention backends", compared)
    refused = float16_refused(check.modules, check.values)
    if refused is None:
        check.gaps.append(Gap("model families without float16: these sources have no such list"))
    else:
        check.changes += compare_float16(refused, FLOAT16_FILE)
    models = read_models(check.modules, check.values)
    check.add("models", compare_models(models) if models else None)
    declared = declared_variables(check.modules)
    compared = None if declared is None else compare_declared(declared, check.facts)
    check.add("declared variables", compared)
    check.variables()
    return check.report()


def _arguments(check: _Check) -> None:
    reader = ParserReader(check.modules, check.values)
    start = reader.read()
    if start is None or not reader.flags:
        check.gaps.append(Gap("arguments: these sources have no parser that can be read"))
        return
    check.add("arguments", compare_arguments(reader, check.facts, start != ENGINE_FILE))


CHECKS: Mapping[str, Callable[[str, str | None], Report]] = {
    MEGATRON.name: check_megatron,
    TRANSFORMER_ENGINE.name: check_transformer_engine,
    VLLM.name: check_vllm,
}
"""The comparison of each package, by its name in the facts."""


def _found_version(
    package: Package, tree: SourceTree, modules: Modules, values: Values
) -> str | None:
    if package is MEGATRON:
        return _package_info(modules, values) or tree.metadata_version
    if "build_tools/VERSION.txt" in tree:
        return tree.text("build_tools/VERSION.txt").strip()
    return tree.metadata_version


def _package_info(modules: Modules, values: Values) -> str | None:
    """``MAJOR.MINOR.PATCH`` and the pre-release of ``megatron/core/package_info.py``."""
    module = modules.at(MEGATRON.anchor)
    if module is None:
        return None
    scope = Scope(module)
    names = ("MAJOR", "MINOR", "PATCH", "PRE_RELEASE")
    parts = [values.of(ast.Name(name), scope) for name in names]
    if not all(isinstance(part, int) for part in parts[:3]):
        return None
    return ".".join(map(str, parts[:3])) + (parts[3] if isinstance(parts[3], str) else "")


def _comparable(package: Package, found: str | None) -> str:
    """The version of the facts for a version of the sources: a pre-release counts as released."""
    try:
        return Version(found or "").base_version
    except InvalidVersion:
        raise SourceError(
            f"{package.distribution}: the sources do not tell their version",
            "say which with --version, for example --version 0.16.1 or --version HEAD",
        ) from None
