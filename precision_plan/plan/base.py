"""What every section of the plan shares: frozen, closed, strict, ``None`` means *not set*."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any

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

    @classmethod
    def takes(cls, name: str, value: Any) -> bool:
        """True if the field ``name`` may hold ``value``; for values that come from no recipe."""
        from pydantic import ValidationError

        try:
            _adapter(cls, name).validate_python(value, strict=True)
        except ValidationError:
            return False
        return True


@lru_cache(maxsize=512)
def _adapter(section: type[Section], name: str) -> Any:
    from pydantic import TypeAdapter  # recipes are validated as a whole and need none

    info = section.model_fields[name]
    annotated: Any = Annotated[info.annotation, info]
    return TypeAdapter(annotated)
