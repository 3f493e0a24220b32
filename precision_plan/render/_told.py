"""A finding in words that are safe to print: no secrets, no characters that something acts upon."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from precision_plan.plan.baseline import Key
from precision_plan.plan.origin import UNKNOWN
from precision_plan.render._findings import setting
from precision_plan.render._layout import printable

if TYPE_CHECKING:
    from precision_plan.plan import Diagnostic, Origin
    from precision_plan.render._mask import Mask
    from precision_plan.render._run import Run


class Told(NamedTuple):
    """The parts of a finding; each is one line."""

    message: str
    set_by: str
    because: tuple[str, ...]
    taken: str
    fixes: tuple[str, ...]

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of everything that follows the message."""
        return (
            *((("set by", self.set_by),) if self.set_by else ()),
            *(("because", text) for text in self.because),
            *((("taken", self.taken),) if self.taken else ()),
            *(("or" if index else "fix", text) for index, text in enumerate(self.fixes)),
        )

    @property
    def lines(self) -> str:
        """Message, premises and ways out, one a line."""
        return "\n".join((self.message, *(f"{label}: {text}" for label, text in self.rows)))


def told(found: Diagnostic, run: Run, mask: Mask) -> Told:
    """The words of a finding, with positions as a reader of the repository names them."""
    because = []
    for premise in found.because:
        text = _safe(premise.text, mask)
        place, argument = run.place(premise.origin, mask), _argument(premise.origin, mask)
        if place:
            text += f" in {place}"
        elif argument:
            text += f" by {argument}"
        because.append(text)
    taken = ", ".join(f"{name} = {setting(value)}" for name, value in found.resolved.items())
    return Told(
        _safe(found.message, mask),
        "" if run.place(found.origin, mask) else _argument(found.origin, mask),
        tuple(because),
        _safe(taken, mask),
        tuple(_safe(fix.text, mask) for fix in found.fix),
    )


def key_of(found: Diagnostic, run: Run, mask: Mask) -> Key:
    """What a finding is known by from one run to the next."""
    place = run.place_of(found, mask)
    path = printable(place.path) if place else ""
    return Key(path, found.id, found.field or "", _safe(found.message, mask))


def _argument(origin: Origin, mask: Mask) -> str:
    """The text of the argument that an origin is, where it is no position in a file."""
    return "" if origin == UNKNOWN else _safe(str(origin), mask)


def _safe(text: str, mask: Mask) -> str:
    return printable(mask.text(text))
