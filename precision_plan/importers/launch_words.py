"""Finds the launch in the words of a command: who runs what, with which arguments and environment.

``nohup``, ``srun`` and their like are looked through, ``torchrun`` and ``ray job submit`` give up
their own options, and what is left is a Python file or an engine with its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from precision_plan.facts.launches import Entry, Program, launch_entry, launch_programs
from precision_plan.importers.jobs import NOTHING, Command
from precision_plan.importers.texts import Text

_PYTHON = re.compile(r"python[23]?(\.\d+)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_RUNNERS = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_SERVERS = frozenset({"serve"})


@dataclass(frozen=True, slots=True)
class Submit:
    """What ``ray job submit`` was told, by option; ``entry`` is where the job's command begins."""

    options: Mapping[str, Text]
    entry: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A program with arguments that a plan can be read from.

    ``entry`` is the file or module (``None``: ``vllm serve``), ``row`` what is known of it.
    ``first`` is where its arguments begin among the command's words, ``options`` are
    ``torchrun``'s. ``env`` is what its process sees of the shell's environment.
    """

    program: Literal["python", "vllm"]
    entry: Text | None
    row: Entry | None
    first: int
    env: Mapping[str, Text]
    options: Mapping[str, Text]
    submit: Submit | None = None


def launch_of(command: Command) -> Launch | None:
    """The launch that ``command`` is; ``None`` if it is none."""
    words, index = command.words, 0
    env = dict(command.env)
    submit: Submit | None = None
    while index < len(words):
        program = _program(words, index)
        if program is None:
            return None
        if program.kind == "prefix":
            index = _through(words, index, program, env)
            continue
        if program.kind == "ray":
            submit = _submit(words, index, program)
            if submit is None or submit.entry >= len(words):
                return None
            index = submit.entry
            continue
        if program.kind == "vllm":
            serves = index + 1 < len(words) and words[index + 1].value in _SERVERS
            return Launch("vllm", None, None, index + 2, env, NOTHING, submit) if serves else None
        found = _python(words, index) if program.kind == "python" else _torchrun(words, index + 1)
        return None if found is None else replace(found, env=env, submit=submit)
    return None


def prefix_environment(words: tuple[Text, ...], env: Mapping[str, Text]) -> dict[str, Text]:
    """What the program behind some prefixes sees of ``env``."""
    seen, index = dict(env), 0
    while index < len(words):
        program = _program(words, index)
        if program is None or program.kind != "prefix":
            break
        index = _through(words, index, program, seen)
    return seen


def _program(words: tuple[Text, ...], index: int) -> Program | None:
    """The program that word ``index`` names; an unknown name before a Python file is Python."""
    value = words[index].value
    programs = launch_programs()
    if value is None:
        following = words[index + 1].shown if index + 1 < len(words) else ""
        return programs["python"] if following.endswith(".py") else None
    name = value.rpartition("/")[2]
    return programs["python"] if _PYTHON.fullmatch(name) else programs.get(name)


def _through(words: tuple[Text, ...], index: int, program: Program, env: dict[str, Text]) -> int:
    """The index of the program behind a prefix; its options may have values of any kind."""
    at = index + 1
    kept, given = not program.clears, {}
    while at < len(words):
        shown = words[at].shown
        if _program(words, at) is not None:
            break
        if program.assigns and _ASSIGNMENT.match(shown):
            name = shown.partition("=")[0]
            given[name] = words[at].part(len(name) + 1)
        kept = (kept and shown not in program.clears_with) or shown in program.keeps_with
        if shown in program.sets_with and at + 1 < len(words):
            name, equals, _ = words[at + 1].shown.partition("=")
            if equals:
                given[name] = words[at + 1].part(len(name) + 1)
            elif name in env:
                given[name] = env[name]
        at += 1
    if not kept:
        env.clear()
    env.update(given)
    return at


def _options(
    words: tuple[Text, ...], index: int, program: Program
) -> tuple[dict[str, Text], frozenset[str], int]:
    """Options from ``index`` on: those with a value, the switches, and the index after them."""
    found: dict[str, Text] = {}
    switches = set()
    while index < len(words):
        shown = words[index].shown
        if not shown.startswith("-") or shown == "--":
            break
        name, equals, _ = shown.partition("=")
        index += 1
        if equals:
            found[name] = words[index - 1].part(len(name) + 1)
        elif name in program.switches:
            switches.add(name)
        elif index < len(words):
            found[name] = words[index]
            index += 1
    return found, frozenset(switches), index


def _submit(words: tuple[Text, ...], index: int, program: Program) -> Submit | None:
    if [word.value for word in words[index + 1 : index + 3]] != ["job", "submit"]:
        return None
    found, _, after = _options(words, index + 3, program)
    after = _past_torn(words, after, found.get(_RUNTIME_ENV))
    if after < len(words) and words[after].shown == "--":
        after += 1
    return Submit(found, after)


_RUNTIME_ENV = "--runtime-env-json"


def _past_torn(words: tuple[Text, ...], at: int, text: Text | None) -> int:
    """The index after a JSON text without quotes, which the shell tears into words."""
    if text is None or text.shown.count("{") <= text.shown.count("}"):
        return at
    return next((i for i in range(at, len(words)) if words[i].shown == "--"), at)


def _python(words: tuple[Text, ...], index: int) -> Launch | None:
    at = _past_unknown(words, index + 1)
    while at < len(words):
        shown = words[at].shown
        if shown == "-m" and at + 1 < len(words):
            return _module(words, at + 1)
        if not shown.startswith("-"):
            return _file(words, at)
        if shown in {"-c", "-"}:
            return None
        at += 2 if shown in {"-X", "-W"} else 1
    return None


def _module(words: tuple[Text, ...], at: int) -> Launch | None:
    name = words[at].shown
    if name in _RUNNERS:
        return _torchrun(words, at + 1)
    row = launch_entry(name)
    if row is not None and row.frameworks == ("vllm",):
        serve = at + 1 < len(words) and words[at + 1].value in _SERVERS
        return Launch("vllm", words[at], row, at + 1 + serve, NOTHING, NOTHING)
    row = launch_entry(f"{name.rpartition('.')[2]}.py")
    return Launch("python", words[at], row, at + 1, NOTHING, NOTHING)


def _file(words: tuple[Text, ...], at: int) -> Launch | None:
    name = words[at].shown.rpartition("/")[2]
    row = launch_entry(name) if name.endswith(".py") else None
    if row is None and words[at].known:
        return None
    return Launch("python", words[at], row, at + 1, NOTHING, NOTHING)


def _torchrun(words: tuple[Text, ...], at: int) -> Launch | None:
    found, switches, at = _options(words, at, launch_programs()["torchrun"])
    at = _past_unknown(words, at)
    if at >= len(words):
        return None
    launch = _file(words, at) if switches.isdisjoint(_MODULE) else _module(words, at)
    options = {name.replace("_", "-"): value for name, value in found.items()}
    return None if launch is None else replace(launch, options=options)


_MODULE = frozenset({"-m", "--module"})


def _past_unknown(words: tuple[Text, ...], at: int) -> int:
    """``torchrun $OPTIONS train.py``: what is not known and may be options is looked over."""
    later = at
    while later < len(words) and words[later].splits:
        later += 1
    return later if later < len(words) and words[later].shown.endswith(".py") else at
