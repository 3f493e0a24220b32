"""What every section of the plan shares: frozen, closed, strict, ``None`` means *not set*."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen section. Unknown keys are refused and values are not coerced across types.

    Every field defaults to ``None``, which means *not set in any layer*; it never means the
    program's default. What a program would take is asked from :mod:`precision_plan.plan.effective`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
        defer_build=True,  # only the plan as a whole is validated: build one schema, not fifteen
    )

    def set_items(self) -> Iterator[tuple[str, Any]]:
        """Yield ``(field, value)`` of the fields that are set, in declaration order."""
        for name, value in self.__dict__.items():
            if value is not None:
                yield name, value
