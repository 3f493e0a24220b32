"""Quantization methods and attention backends of vLLM: the classes behind their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.drift.modules import Found, Modules, Scope
from precision_plan.drift.values import Computed, EnumClass, Values

_QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
_MAP = "get_quantization_config"
_SHORTHANDS = ("vllm/config/quantization.py", "_ONLINE_SHORTHANDS", "OnlineQuantScheme")
_ROCM = ("vllm/platforms/rocm.py", "RocmPlatform", "supported_quantization")
_REGISTRIES = (
    "vllm/v1/attention/backends/registry.py",
    "vllm/attention/backends/registry.py",
)
_ENUM = "AttentionBackendEnum"
FLOAT16_FILE = "vllm/config/model.py"
_FLOAT16 = "_FLOAT16_NOT_SUPPORTED_MODELS"
_HOPS = 8

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MethodClass:
    """The class that reads the checkpoints of one name.

    ``reports`` is what its ``get_name`` returns. A value that depends on the machine or on the
    checkpoint is :class:`Computed`.
    """

    name: str
    cls: str
    at: str
    reports: str | Computed
    min_cc: int | Computed
    act_dtypes: Texts | Computed


@dataclass(frozen=True, slots=True)
class Methods:
    """What a tree registers: classes by name, and the lists beside them (``None``: none found).

    ``unread`` are names whose class was not found.
    """

    classes: Mapping[str, MethodClass]
    deprecated: Texts | None
    shorthands: Texts | None
    rocm: Texts | None
    unread: Texts
    at: str


@dataclass(frozen=True, slots=True)
class BackendClass:
    """An attention backend: what its class declares without a condition."""

    name: str
    path: str | None
    at: str
    dtypes: Texts | Computed
    kv_dtypes: Texts | Computed


def read_methods(modules: Modules, values: Values) -> Methods | None:
    """The quantization methods of a tree; ``None`` if its table of classes is not found."""
    module = modules.at(_QUANTIZATION)
    function = modules.find(_MAP, Scope(module)) if module else None
    if module is None or not isinstance(function, Found):
        return None
    if not isinstance(function.node, ast.FunctionDef):
        return None
    table = next((item for item in _assigned(function.node) if isinstance(item, ast.Dict)), None)
    if table is None:
        return None
    scope = function.scope.inside(function.node.body)
    classes: dict[str, MethodClass] = {}
    unread = []
    for key, value in zip(table.keys, table.values, strict=True):
        name = values.of(key, scope) if key is not None else None
        found = _class(modules, value, scope)
        if isinstance(name, str) and found is not None:
            classes[name] = _method(name, found, modules, values)
        else:
            unread.append(str(name) if isinstance(name, str) else ast.unparse(value))
    deprecated = values.of(ast.Name("DEPRECATED_QUANTIZATION_METHODS"), Scope(module))
    return Methods(
        classes,
        _texts(deprecated),
        _shorthands(modules, values),
        _rocm(modules, values),
        tuple(unread),
        scope.where(table),
    )


def read_backends(modules: Modules, values: Values) -> dict[str, BackendClass] | None:
    """Attention backends by name; ``None`` if the tree has no registry."""
    for path in _REGISTRIES:
        module = modules.at(path)
        found = modules.find(_ENUM, Scope(module)) if module else None
        enum = values.enum(found)
        if enum is not None and isinstance(found, Found):
            return dict(_backends(enum, found, modules, values))
    return None


def float16_refused(modules: Modules, values: Values) -> Texts | None:
    """Model types that vLLM does not run in float16; ``None`` if the list is not found."""
    module = modules.at(FLOAT16_FILE)
    if module is None:
        return None
    found = values.of(ast.Name(_FLOAT16), Scope(module))
    return _texts(list(found)) if isinstance(found, dict) else None


def _assigned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield node.value


def _texts(value: Any) -> Texts | None:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)


def _class(modules: Modules, node: ast.expr, scope: Scope, hops: int = _HOPS) -> Found | None:
    found = modules.find_expression(node, scope)
    if not isinstance(found, Found):
        return None
    if isinstance(found.node, ast.ClassDef):
        return found
    if isinstance(found.node, ast.expr) and hops:  # a name for one class or another
        return _class(modules, found.node, found.scope, hops - 1)
    return None


def _method(name: str, found: Found, modules: Modules, values: Values) -> MethodClass:
    assert isinstance(found.node, ast.ClassDef)
    dtypes = returned(found, "get_supported_act_dtypes", modules, values)
    reports = returned(found, "get_name", modules, values)
    least = returned(found, "get_min_capability", modules, values)
    return MethodClass(
        name,
        found.node.name,
        found.scope.where(found.node),
        reports if isinstance(reports, str) else _computed(reports, "get_name"),
        least if isinstance(least, int) else _computed(least, "get_min_capability"),
        tuple(dtypes)
        if isinstance(dtypes, list)
        else _computed(dtypes, "get_supported_act_dtypes"),
    )


def _computed(value: Any, what: str) -> Computed:
    return value if isinstance(value, Computed) else Computed(what)


def returned(found: Found, name: str, modules: Modules, values: Values) -> Any:
    """The one value that a method returns; :class:`Computed` if there are several."""
    method = _member(found, name, modules)
    if method is None or not isinstance(method.node, ast.FunctionDef):
        return Computed(name)
    returns = [
        node.value
        for node in ast.walk(method.node)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    scope = method.scope.inside(method.node.body)
    results = [_value(node, scope, values) for node in returns]
    if len(results) == 1:
        return results[0]
    if results and all(result == results[0] for result in results):
        return results[0]
    return Computed(f"{name}: {len(results)} ways to return")


def _value(node: ast.expr, scope: Scope, values: Values) -> Any:
    """A value, or the names of torch dtypes in a list."""
    if isinstance(node, ast.List | ast.Tuple):
        names = [_dtype(item) for item in node.elts]
        if names and all(names):
            return names
    return values.of(node, scope)


def _dtype(node: ast.expr) -> str | None:
    text = ast.unparse(node)
    return text.removeprefix("torch.") if text.startswith("torch.") else None


def _member(found: Found, name: str, modules: Modules, hops: int = _HOPS) -> Found | None:
    """A method or an attribute of a class or of its bases, in their order."""
    if not isinstance(found.node, ast.ClassDef) or not hops:
        return None
    for statement in found.node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return Found(statement, found.scope)
    own = found.scope.inside(found.node.body).local.get(name)
    if isinstance(own, ast.expr):
        return Found(own, found.scope)
    for base in found.node.bases:
        known = modules.find_expression(base, found.scope)
        if isinstance(known, Found):
            member = _member(known, name, modules, hops - 1)
            if member is not None:
                return member
    return None


def _shorthands(modules: Modules, values: Values) -> Texts | None:
    """Names of online quantization: the keys of a table, or (before) members of an enumeration."""
    path, table, scheme = _SHORTHANDS
    module = modules.at(path)
    if module is None:
        return None
    found = modules.find(table, Scope(module))
    if isinstance(found, Found) and isinstance(found.node, ast.Dict):
        keys = [values.of(key, found.scope) for key in found.node.keys if key is not None]
        return _texts(keys)
    enum = values.enum(modules.find(scheme, Scope(module)))
    return _texts([member.value for member in enum.members]) if enum else None


def _rocm(modules: Modules, values: Values) -> Texts | None:
    path, name, attribute = _ROCM
    module = modules.at(path)
    found = modules.find(name, Scope(module)) if module else None
    listed = _member(found, attribute, modules) if isinstance(found, Found) else None
    if listed is None or not isinstance(listed.node, ast.expr):
        return None
    return _texts(values.of(listed.node, listed.scope))


def _backends(
    enum: EnumClass, found: Found, modules: Modules, values: Values
) -> Iterator[tuple[str, BackendClass]]:
    lines = {
        ast.unparse(node.targets[0]): found.scope.where(node)
        for node in getattr(found.node, "body", ())
        if isinstance(node, ast.Assign)
    }
    for member in enum.members:
        path = member.value if isinstance(member.value, str) and member.value else None
        module = modules.named(path.rpartition(".")[0]) if path else None
        name = path.rpartition(".")[2] if path else ""
        cls = modules.find(name, Scope(module)) if module else None
        dtypes: Texts | Computed = Computed("supported_dtypes")
        kv_dtypes: Texts | Computed = Computed("supported_kv_cache_dtypes")
        if isinstance(cls, Found):
            dtypes = _listed(cls, "supported_dtypes", modules, values)
            kv_dtypes = _listed(cls, "supported_kv_cache_dtypes", modules, values)
        yield member.name, BackendClass(member.name, path, lines[member.name], dtypes, kv_dtypes)


def _listed(cls: Found, name: str, modules: Modules, values: Values) -> Texts | Computed:
    found = _member(cls, name, modules)
    if found is None or not isinstance(found.node, ast.expr):
        return Computed(name)
    value = _value(found.node, found.scope, values)
    return _texts(value) or Computed(ast.unparse(found.node))
