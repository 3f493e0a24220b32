"""Suppression comments: which findings they silence, and what is wrong with the comments."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from precision_plan.plan import Diagnostic, Fix
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.suppression import Suppression

_NEVER_SILENCED = frozenset({"PP020", "PP021"})


def suppress(
    diagnostics: Iterable[Diagnostic],
    suppressions: Iterable[Suppression],
    unchecked: Collection[str] = (),
) -> tuple[Diagnostic, ...]:
    """Drop the findings that a comment silences and add those about the comments themselves.

    A comment without a reason silences nothing and is an error (PP020). One that silences
    nothing is reported (PP021), unless one of its rules is in ``unchecked``: such a rule could
    not speak this time and may well do so on another target. Broken input cannot be silenced.
    """
    given = tuple(suppressions)
    if not given:
        return tuple(diagnostics)
    valid = tuple(comment for comment in given if comment.reason.strip())
    used: set[int] = set()
    kept: list[Diagnostic] = []
    for found in diagnostics:
        silencing = [index for index, comment in enumerate(valid) if _silences(comment, found)]
        used.update(silencing)
        if not silencing:
            kept.append(found)
    kept.extend(_without_reason(comment) for comment in given if not comment.reason.strip())
    kept.extend(
        _unused(comment)
        for index, comment in enumerate(valid)
        if index not in used and not any(id in unchecked for id in comment.ids)
    )
    return tuple(sorted(kept, key=Diagnostic.sort_key))


def _silences(comment: Suppression, found: Diagnostic) -> bool:
    if found.id not in comment.ids or found.id in _NEVER_SILENCED or is_broken_input(found):
        return False
    file, line = comment.origin.file, comment.line
    origins = (found.origin, *(premise.origin for premise in found.because))
    return any(origin.file == file and line in (0, origin.line) for origin in origins)


def _without_reason(comment: Suppression) -> Diagnostic:
    return compose_diagnostic(
        "PP020",
        f"the suppression of {', '.join(comment.ids)} gives no reason and is not obeyed",
        comment.origin,
    )


def _unused(comment: Suppression) -> Diagnostic:
    return compose_diagnostic(
        "PP021",
        f"nothing here is silenced by ignore[{', '.join(comment.ids)}]",
        comment.origin,
        fix=(Fix("remove the comment", applicability="safe", comment=comment.origin),),
    )
