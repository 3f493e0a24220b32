"""String literals of Python letter by letter: what each says, and where each part stands.

The syntax tree joins literals that follow one another and, before Python 3.12, does not know where
the parts of an f-string are. Here the source text is scanned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_OPENING = re.compile(r"([A-Za-z]{0,2})(\"\"\"|'''|\"|')")
_BETWEEN = re.compile(r"(?:\s|\\\n|#[^\n]*|[()])*")
_SUFFIX = re.compile(r"(?:!(?:s|(?P<form>[ra])))?\s*(?::(?P<spec>.*))?", re.DOTALL)


class Part(NamedTuple):
    """A run of text, or an expression in braces; ``start`` is an index into the source.

    ``exact`` says that a text stands in the source letter by letter. An expression with a format
    (``{x:.2f}``) has ``exact`` false.
    """

    text: str
    start: int
    is_expression: bool = False
    exact: bool = True


def parts(source: str, start: int, end: int) -> Iterator[Part]:
    """The parts of the literals between two indices, in order."""
    at = start
    while at < end:
        between = _BETWEEN.match(source, at, end)
        at = between.end() if between else at
        opening = _OPENING.match(source, at, end)
        if opening is None:
            return
        prefix, quote = opening[1].lower(), opening[2]
        inner, at = opening.end(), _closing(source, opening.end(), end, quote, "f" in prefix)
        body_end = at - len(quote)
        if "f" in prefix:
            yield from _formatted(source, inner, body_end, "r" in prefix)
        elif inner < body_end:
            yield _text(source[inner:body_end], inner, "r" in prefix)


def _closing(source: str, at: int, end: int, quote: str, is_formatted: bool) -> int:
    """The index behind the quote that ends a literal."""
    depth = 0
    while at < end:
        char = source[at]
        if (char == "\\" and not depth) or (
            is_formatted and char == "{" and not depth and source[at + 1 : at + 2] == "{"
        ):
            at += 2
        elif is_formatted and char == "{":
            depth += 1
            at += 1
        elif depth and char == "}":
            depth -= 1
            at += 1
        elif depth and char in "\"'" and (nested := _OPENING.match(source, at, end)):
            if source.startswith(quote, at) and not _ends(source, nested, end, quote):
                return at + len(quote)
            at = _closing(source, nested.end(), end, nested[2], False)
        elif not depth and source.startswith(quote, at):
            return at + len(quote)
        else:
            at += 1
    return end


def _ends(source: str, nested: re.Match[str], end: int, quote: str) -> bool:
    """True if a quote inside of braces opens a literal of its own (from Python 3.12 on)."""
    return source.find(quote, nested.end(), end) >= 0


def _formatted(source: str, at: int, end: int, is_raw: bool) -> Iterator[Part]:
    """The parts of an f-string."""
    run = at
    while at < end:
        char = source[at]
        if source[at : at + 2] in ("{{", "}}"):
            if at + 1 > run:
                yield _text(source[run : at + 1], run, is_raw)
            at += 2
            run = at
        elif char == "{":
            if at > run:
                yield _text(source[run:at], run, is_raw)
            stop = _brace(source, at + 1, end)
            yield _expression(source[at + 1 : stop], at + 1)
            run = at = stop + 1
        elif char == "\\" and not is_raw:
            at += 2
        else:
            at += 1
    if run < end:
        yield _text(source[run:end], run, is_raw)


def _brace(source: str, at: int, end: int) -> int:
    """The index of the brace that closes an expression."""
    depth = 0
    while at < end:
        char = source[at]
        if char in "\"'" and (opening := _OPENING.match(source, at, end)):
            at = _closing(source, opening.end(), end, opening[2], False)
            continue
        if char in "{[(":
            depth += 1
        elif char in "}])":
            if not depth:
                return at
            depth -= 1
        at += 1
    return end


def _expression(text: str, start: int) -> Part:
    """An expression without its conversion and format."""
    try:
        ast.parse(f"({text})", mode="eval")
        return Part(text, start, True)
    except SyntaxError:
        pass
    for at in (index for index, char in enumerate(text) if char in "!:="):
        suffix = _SUFFIX.fullmatch(text.removeprefix("="), at)
        if suffix is None:
            continue
        try:
            ast.parse(f"({text[:at]})", mode="eval")
        except SyntaxError:
            continue
        return Part(text[:at], start, True, not (suffix["spec"] or suffix["form"]))
    return Part(text, start, True, False)


def _text(raw: str, start: int, is_raw: bool) -> Part:
    if is_raw or "\\" not in raw:
        return Part(raw, start)
    quote = '"""' if '"' not in raw else "'''"
    try:
        value = ast.literal_eval(f"{quote}{raw}{quote}")
    except (SyntaxError, ValueError):
        value = raw
    return Part(str(value), start, exact=False)
