"""Text to YAML nodes, and the parser's complaints in words that lead on."""

from __future__ import annotations

import yaml

from precision_plan.compose.reading import Unreadable
from precision_plan.compose.scalars import Loader
from precision_plan.plan.codes import compose_diagnostic
from precision_plan.plan.diagnostic import Because, Diagnostic, Fix
from precision_plan.plan.origin import Origin

DEPTH_LIMIT = 32
"""Levels of nesting; a recipe needs six."""


def compose_node(text: str, shown: str) -> yaml.Node | None:
    """The one document in ``text``, or ``None`` if there is none.

    Raises:
        Unreadable: if the text is not YAML, or holds characters that YAML does not allow.
    """
    loader = None
    try:
        loader = Loader(text)
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_syntax(error, shown)) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        offset = getattr(error, "position", None)
        line = text.count("\n", 0, offset) + 1 if isinstance(offset, int) else 0
        raise Unreadable(
            compose_diagnostic(
                "PP010",
                "the file holds control characters that no YAML text may hold",
                Origin(shown, line),
                fix=(Fix("name a YAML file"),),
            )
        ) from None
    except RecursionError:  # PyYAML without libyaml has no limit of its own
        raise Unreadable(too_deep(Origin(shown))) from None
    finally:
        if loader is not None:
            loader.dispose()
    return node


_HINTS = {
    "expected node content": "write a value here, or close the bracket",
    "expected ',' or": "separate the items with commas, or close the bracket",
    "mapping values are not allowed": "indent this line as its neighbours, or quote the value",
    "block end": "indent this line as its neighbours",
    "expected key": "indent this line as its neighbours",
    "expected '-' indicator": "indent this line as its neighbours",
    "expected ':'": "write 'key: value'",
    "cannot start any token": "indent with spaces; quote a value that starts with % @ or `",
    "unexpected end of stream": "close the quote",
    "undefined alias": "define it with &name first, or quote a value that starts with *",
}
"""What to do about a problem, by a part of the parser's words for it."""


def _syntax(error: yaml.MarkedYAMLError, shown: str) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    where = Origin(shown, mark.line + 1, mark.column + 1) if mark else Origin(shown)
    problem = error.problem or error.context or "it cannot be parsed"
    if "nesting depth" in problem:
        return too_deep(where)
    if "but found another document" in problem:
        problem = "a second document starts here; a recipe is one document"
    because: tuple[Because, ...] = ()
    if error.context and error.context_mark:
        begin = error.context_mark
        origin = Origin(shown, begin.line + 1, begin.column + 1)
        if origin != where:
            because = (Because(error.context, origin=origin),)
    fix = tuple(Fix(hint) for part, hint in _HINTS.items() if part in problem)[:1]
    return compose_diagnostic("PP001", f"not YAML: {problem}", where, because=because, fix=fix)


def too_deep(where: Origin) -> Diagnostic:
    """The finding that something is nested beyond :data:`DEPTH_LIMIT`."""
    return compose_diagnostic("PP012", f"values are nested deeper than {DEPTH_LIMIT} levels", where)
