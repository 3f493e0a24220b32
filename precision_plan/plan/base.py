"""What every section of the plan shares: frozen, closed, strict, ``None`` means *not set*."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict


class NotKnown(Exception):
    """A value was asked for that is set, but that nobody knows before the run starts."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is set to something that is not known")
        self.field = field


class Section(BaseModel):
    """A frozen section. Unknown keys are refused and values are not coerced across types.

    Every field defaults to ``None``, which means *not set in any layer*; it never means the
    program's default. What a program would take is asked from :mod:`precision_plan.plan.effective`.
    A field may also be set to a value that is not known (see :mod:`precision_plan.plan.unknown`):
    to read it raises :class:`NotKnown`.
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

    if not TYPE_CHECKING:  # a type checker shall still notice a name that is no field

        def __getattr__(self, name: str) -> Any:
            """Called for what the instance does not hold: a field that is not known, or no name."""
            if name in type(self).model_fields:
                raise NotKnown(f"{_section_name(type(self))}.{name}")
            return super().__getattr__(name)

    def unknown(self) -> Iterator[str]:
        """Yield the fields whose value is not known, in declaration order."""
        if len(self.__dict__) < len(type(self).model_fields):
            yield from (name for name in type(self).model_fields if name not in self.__dict__)

    @classmethod
    def takes(cls, name: str, value: Any) -> bool:
        """True if the field ``name`` may hold ``value``; for values that come from no recipe."""
        from pydantic import ValidationError

        try:
            _adapter(cls, name).validate_python(value, strict=True)
        except ValidationError:
            return False
        return True


@lru_cache(maxsize=64)
def _section_name(section: type[Section]) -> str:
    """Name of a section in the plan."""
    from precision_plan.plan.precision_plan import PrecisionPlan  # it is built of sections

    names = (
        name for name, info in PrecisionPlan.model_fields.items() if info.annotation is section
    )
    return next(names, section.__name__.lower())


@lru_cache(maxsize=512)
def _adapter(section: type[Section], name: str) -> Any:
    from pydantic import TypeAdapter  # recipes are validated as a whole and need none

    info = section.model_fields[name]
    annotated: Any = Annotated[info.annotation, info]
    return TypeAdapter(annotated)
