"""Flags that Megatron generates from the fields of configuration dataclasses.

Since 0.16 part of Megatron's parser is built by ``ArgumentGroupFactory``; these are its rules
(NVIDIA/Megatron-LM@core_v0.16.1:megatron/training/argument_utils.py:19-216).
:func:`factory_digest` tells whether another version changed them.
"""

from __future__ import annotations

import ast
import hashlib
from typing import Any

from precision_plan.drift.argparse_rules import ENUM_NAME, Flag, assemble
from precision_plan.drift.dataclass_fields import MISSING, DataclassField, base_name
from precision_plan.drift.modules import Modules, Scope
from precision_plan.drift.values import Computed, EnumClass, Values

FACTORY = "ArgumentGroupFactory"
FACTORY_FILE = "megatron/training/argument_utils.py"
KNOWN_DIGEST = "83f8637ad44f1d55"
"""Digest of the factory in 0.16.0 to 0.19.0 and the development head of 2026-08-22."""

_OUTSIDE_ENUMS = frozenset({"signal.Signals"})


def generated_flag(field: DataclassField, values: Values) -> Flag | None:
    """The flag that the factory makes of a field; ``None`` if its type has no rule."""
    given: dict[str, Any] = {"dest": field.name, "default": field.default}
    names: tuple[str, ...] = (_flag(field.name),)
    action, kind = "store", None
    inferred = _infer(field.annotation, field.scope, values)
    meta = _meta(field, values)
    if field.default is MISSING or (inferred is None and not meta):
        return None
    if inferred is not None:
        kind = inferred.pop("type")
        given.update(inferred)
        if kind == "bool":
            kind = None
            # `default == False`, so that an unset optional boolean counts as on by default
            action = "store_true" if field.default == False else "store_false"  # noqa: E712
            if action == "store_false":
                names = (_flag(f"no_{field.name}"), _flag(f"disable_{field.name}"))
    names = tuple(meta.pop("arg_names", names))
    action = meta.pop("action", action)
    kind = meta.pop("type", kind)
    given.update(meta)
    return assemble(names, action, kind, given, field.source)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _meta(field: DataclassField, values: Values) -> dict[str, Any]:
    """What the field's ``argparse_meta`` overrides; a converter is given by its name."""
    if not isinstance(field.argparse_meta, ast.Dict):
        return {}
    found: dict[str, Any] = {}
    pairs = zip(field.argparse_meta.keys, field.argparse_meta.values, strict=True)
    for key, value in pairs:
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value != "help":
            known = values.of(value, field.scope)
            if key.value == "type":
                known = ast.unparse(value).rpartition(".")[2]
            found[key.value] = known
    return found


def _infer(annotation: ast.expr, scope: Scope, values: Values) -> dict[str, Any] | None:
    """``type``, ``choices`` and ``nargs`` for an annotation; ``None`` if it has no rule."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _infer(ast.parse(annotation.value, mode="eval").body, scope, values)
    if isinstance(annotation, ast.BinOp):
        return _optional(_union(annotation), scope, values)
    if not isinstance(annotation, ast.Subscript):
        return _plain_type(annotation, scope, values)
    inner = annotation.slice
    arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    name = base_name(annotation)
    if name == "Optional":
        return _optional([*_union(inner), ast.Constant(None)], scope, values)
    if name == "Union":
        return _optional([part for item in arguments for part in _union(item)], scope, values)
    if name in ("list", "List") and len(arguments) == 1:
        found = _infer(arguments[0], scope, values)
        return None if found is None else {**found, "nargs": "+"}
    if name == "Literal":
        choices = [values.of(item, scope) for item in arguments]
        return {"type": type(choices[0]).__name__, "choices": choices}
    return None


def _union(node: ast.expr) -> list[ast.expr]:
    """The alternatives of ``A | B | C``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_union(node.left), *_union(node.right)]
    return [node]


def _optional(alternatives: list[ast.expr], scope: Scope, values: Values) -> dict[str, Any] | None:
    """Only ``X | None``, in this order, has a rule: that of ``X``."""
    second = alternatives[1]
    if isinstance(second, ast.Constant) and second.value is None:
        return _infer(alternatives[0], scope, values)
    return None


def _plain_type(annotation: ast.expr, scope: Scope, values: Values) -> dict[str, Any] | None:
    name = base_name(annotation)
    if name == "Callable":
        return None
    found = values.modules.find_expression(annotation, scope)
    enum: EnumClass | None = values.enum(found)
    if enum is not None:
        return {"type": ENUM_NAME, "choices": enum}
    if isinstance(found, str) and found in _OUTSIDE_ENUMS:
        return {"type": ENUM_NAME, "choices": Computed(f"list({found})")}
    return {"type": name}


def factory_digest(modules: Modules) -> str | None:
    """A digest of the factory's code without docstrings, comments and layout.

    ``None`` if the tree has no factory. Made from the text, not from the syntax tree, whose form
    depends on the version of the interpreter.
    """
    module = modules.at(FACTORY_FILE)
    node = module.definitions.get(FACTORY) if module else None
    if module is None or not isinstance(node, ast.ClassDef):
        return None
    lines = modules.tree.text(module.path).splitlines()
    kept = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            kept -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    code = ("".join(lines[number - 1].split()) for number in sorted(kept))
    text = "\n".join(line for line in code if line and not line.startswith("#"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
