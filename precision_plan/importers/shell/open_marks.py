"""Quotes, brackets and keywords that are still open at the end of a script.

The grammar does not know every spelling that bash takes; where it stumbles, this count decides
whether anything really stays open. Comments, here-documents and quoted text are passed over.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEREDOC = re.compile(r"<<-?[ \t]*(?P<quote>['\"\\]?)(?P<mark>[A-Za-z_]\w*)")
_WORD = re.compile(r"[A-Za-z]+")
_CLOSERS = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done"}
_CLOSERS["select"] = "done"
_COMMAND_FOLLOWS = frozenset(";&|(){}!`\n")
_HEADS = frozenset({"do", "then", "else", "elif", "if", "while", "until", "time"})


class Open(NamedTuple):
    """What is open: its mark, and the index of the character at which it begins."""

    mark: str
    start: int


def still_open(text: str) -> Open | None:
    """The outermost thing that ``text`` opens and never closes; ``None`` if there is none."""
    return _Lexer(text).run()


class _Lexer:
    """Walks over a script once; ``stack`` holds what is open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.stack: list[Open] = []
        self.documents: list[str] = []
        self.command_next = True  # a keyword stands only where a command may

    def run(self) -> Open | None:
        while self.at < len(self.text):
            if self.stack and self.stack[-1].mark == '"':
                self._in_quotes()
            else:
                self._in_commands()
        return self.stack[0] if self.stack else None

    def _open(self, mark: str, size: int = 1) -> None:
        self.stack.append(Open(mark, self.at))
        self.at += size

    def _close(self, *marks: str) -> bool:
        if self.stack and self.stack[-1].mark in marks:
            self.stack.pop()
            return True
        return False

    def _in_quotes(self) -> None:
        char = self.text[self.at]
        if char == "\\":
            self.at += 2
        elif char == '"':
            self._close('"')
            self.at += 1
        elif self.text.startswith(("$(", "${"), self.at):
            self._open("(" if self.text[self.at + 1] == "(" else "${", 2)
            self.command_next = True
        elif char == "`":
            self._tick()
        else:
            self.at += 1

    def _tick(self) -> None:
        if any(each.mark == "`" for each in self.stack):
            while self.stack.pop().mark != "`":
                pass
            self.at += 1
        else:
            self._open("`")

    def _in_commands(self) -> None:
        char = self.text[self.at]
        if char == "\\":
            self.at += 2
            self.command_next = False
        elif char == "'":
            self._single()
        elif char == '"':
            self._open('"')
            self.command_next = False
        elif char == "`":
            self._tick()
        elif char == "#" and self._begins_word():
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char == "\n":
            self._line_end()
        elif char == "<" and self._heredoc():
            return
        elif self.text.startswith("${", self.at):
            self._open("${", 2)
        elif char in "({":
            self._open(char)
            self.command_next = True
        elif char in ")}":
            self._close(*(("(",) if char == ")" else ("{", "${")))
            self.at += 1
            self.command_next = True
        else:
            self._word_or_mark(char)

    def _begins_word(self) -> bool:
        before = self.text[self.at - 1] if self.at else "\n"
        return before in " \t\n;&|()" and not (self.stack and self.stack[-1].mark == "${")

    def _single(self) -> None:
        dollar = self.at > 0 and self.text[self.at - 1] == "$"
        end = self.at + 1
        while (end := self.text.find("'", end)) >= 0:
            if not dollar or (len(self.text[:end]) - len(self.text[:end].rstrip("\\"))) % 2 == 0:
                break
            end += 1
        if end < 0:
            self.stack.insert(0, Open("'", self.at))
            self.at = len(self.text)
        else:
            self.at = end + 1
        self.command_next = False

    def _heredoc(self) -> bool:
        if self.text.startswith("<<<", self.at):
            self.at += 3
            return True
        found = _HEREDOC.match(self.text, self.at)
        if found is None:
            return False
        self.documents.append(found["mark"])
        self.at = found.end() + (1 if found["quote"] in {"'", '"'} else 0)
        return True

    def _line_end(self) -> None:
        self.at += 1
        self.command_next = True
        for mark in self.documents:
            end = re.compile(rf"^\t*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(
                self.text, self.at
            )
            self.at = len(self.text) if end is None else end.end()
        self.documents.clear()

    def _word_or_mark(self, char: str) -> None:
        found = _WORD.match(self.text, self.at)
        if found is None:
            self.command_next = char in _COMMAND_FOLLOWS or (self.command_next and char in " \t")
            self.at += 1
            return
        after = self.text[found.end() : found.end() + 1]
        keyword = self.command_next and (not after or after in " \t\n;&|()")
        word = found[0]
        if keyword and word in _CLOSERS:
            self.stack.append(Open(word, self.at))
        elif keyword and word in {"fi", "esac", "done"}:
            self._close(*(opener for opener, closer in _CLOSERS.items() if closer == word))
        self.command_next = keyword and word in _HEADS
        self.at = found.end()
