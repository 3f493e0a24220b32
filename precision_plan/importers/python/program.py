"""A file of Python as a tree, with its functions and the parameters that its classes hold."""

from __future__ import annotations

import ast
import warnings

from precision_plan.importers.python.values import Program
from precision_plan.importers.texts import Source


def program_of(source: Source) -> Program | None:
    """The program; ``None`` if the file is no Python."""
    tree = parsed(source)
    return None if isinstance(tree, SyntaxError) else program(source, tree)


def parsed(source: Source) -> ast.Module | SyntaxError:
    """The tree of a file, or what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in its literals
            return ast.parse(source.data.decode("utf-8", "replace"))
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError):
        return SyntaxError("it is nested too deeply")
    except ValueError as error:
        return SyntaxError(str(error))


def program(source: Source, tree: ast.Module) -> Program:
    """The program of a tree."""
    found = Program(source, source.data.decode("utf-8", "replace"))
    found.starts = [0]
    for line in source.data.splitlines(keepends=True):
        found.starts.append(found.starts[-1] + len(line))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found.classes[node.name] = _fields(node)
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__post_init__":
                    found.prepared[node.name] = each
    return found


def _fields(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Fields of a class with their defaults."""
    return {
        each.target.id: each.value
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
