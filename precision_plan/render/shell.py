"""A bash script that carries the lowered settings: arrays of arguments and the job's environment.

Nothing secret is written: a secret becomes ``${NAME:?set NAME}``, which the shell of whoever runs
the script must provide. A plan with errors becomes a script that refuses to run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from precision_plan.render._layout import printable
from precision_plan.render._mask import Mask

if TYPE_CHECKING:
    from precision_plan.plan import Lowering
    from precision_plan.plan.compiled import Compiled

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON_TEXT = """\
json_text() {  # a value as it stands between the quotes of a JSON string
  local text=${1//\\\\/\\\\\\\\}
  text=${text//\\"/\\\\\\"}
  printf '%s' "$text"
}"""


def plan(compiled: Compiled) -> str:
    """The script; ``bash -n`` accepts it whatever the values hold."""
    mask = Mask.of(compiled.plan, compiled.lowering)
    blocks = [_preamble(compiled, mask)]
    if compiled.exit_code or compiled.lowering is None:
        blocks.append(_refusal(compiled, mask))
    if compiled.lowering is not None:
        blocks += _settings(compiled.lowering, mask)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _preamble(compiled: Compiled, mask: Mask) -> str:
    title = compiled.plan.recipe.title
    about = [compiled.name, *([title] if title else [])]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"# {printable(mask.text(text))}" for text in about),
            f"# fingerprint {compiled.fingerprint}",
            "set -euo pipefail",
        ]
    )


def _refusal(compiled: Compiled, mask: Mask) -> str:
    lines = [
        f"# {found.severity}[{found.id}] {printable(mask.text(found.message))}"
        for found in compiled.diagnostics
        if found.severity == "error"
    ]
    text = shlex.quote(f"{mask.text(compiled.name)}: this plan has errors and is not launched")
    return "\n".join([*lines, f"printf '%s\\n' {printable(text)} >&2", "exit 1"])


def _settings(lowering: Lowering, mask: Mask) -> list[str]:
    blocks = [
        _array("MEGATRON_ARGS", lowering.megatron.argv, mask),
        _array("VLLM_ARGS", lowering.vllm.passthrough or lowering.vllm.argv, mask),
        _runtime_env(lowering.ray.runtime_env, mask)
        if lowering.ray.runtime_env
        else _exports(lowering.megatron.env, mask),
    ]
    if any("$(json_text " in block for block in blocks):
        blocks.insert(0, _JSON_TEXT)
    return blocks


# Arguments ------------------------------------------------------------------------------------
def _array(name: str, argv: Sequence[str], mask: Mask) -> str:
    if not argv:
        return ""
    return "\n".join([f"{name}=(", *(f"  {line}" for line in _lines(argv, mask)), ")"])


def _lines(argv: Sequence[str], mask: Mask) -> Iterator[str]:
    """One flag with its values a line."""
    line: list[str] = []
    flag = ""
    for word, shown in zip(argv, mask.argv(argv), strict=True):
        if word.startswith("--"):
            if line:
                yield " ".join(line)
            line, flag = [], word.partition("=")[0]
        line.append(quote(word) if word == shown else _without_secret(word, flag, mask))
    if line:
        yield " ".join(line)


def _without_secret(word: str, flag: str, mask: Mask) -> str:
    """A word that holds a secret: a JSON object keeps the rest, any other is replaced whole."""
    if word.startswith("{"):
        try:
            return _json_word(json.loads(word), mask)
        except ValueError:
            pass
    if word.startswith(f"{flag}="):
        return f"{flag}={_variable(flag)}"
    return _variable(flag)


def _variable(name: str) -> str:
    upper = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    if not _NAME.fullmatch(upper):
        upper = f"SECRET_{upper}"
    return f'"${{{upper}:?set {upper}}}"'


def quote(word: str) -> str:
    """``word`` for bash; one that a terminal would act upon is written in ``$'...'`` escapes."""
    word = word.replace("\0", "")  # no argument can hold it
    if printable(word) == word:
        return shlex.quote(word)
    encoded = word.encode("utf-8", "replace")
    return "$'" + "".join(_ansi_c(byte) for byte in encoded) + "'"


def _ansi_c(byte: int) -> str:
    if 32 <= byte < 127 and byte not in b"\\'":
        return chr(byte)
    return f"\\x{byte:02x}"


# Environment ----------------------------------------------------------------------------------
def _exports(env: Mapping[str, str], mask: Mask) -> str:
    lines = []
    for name, value in sorted(env.items()):
        if not _NAME.fullmatch(name):
            lines.append(f"# not a name that bash can export: {printable(mask.text(name))}")
        elif mask.named(name, value) == value:
            lines.append(f"export {name}={quote(value)}")
        else:
            lines.append(f"export {name}={_variable(name)}")
    return "\n".join(lines)


def _runtime_env(runtime_env: Mapping[str, Any], mask: Mask) -> str:
    return f"RUNTIME_ENV_JSON={_json_word(runtime_env, mask)}"


def _json_word(data: Any, mask: Mask) -> str:
    """JSON as one bash word: quoted text with secrets spliced in."""
    word, literal = "", ""
    for piece, is_secret in _pieces(data, mask, "", "\n"):
        if is_secret:
            word += shlex.quote(literal + '"') + f'"$(json_text {_variable(piece)})"'
            literal = '"'
        else:
            literal += piece
    return word + shlex.quote(literal)


def _pieces(node: Any, mask: Mask, name: str, newline: str) -> Iterator[tuple[str, bool]]:
    """The text of ``node`` as JSON in pieces; ``(NAME, True)`` stands for a secret of that name."""
    inner = newline + "  "
    if isinstance(node, Mapping) and node:
        yield "{", False
        for number, (key, item) in enumerate(node.items()):
            yield f"{',' if number else ''}{inner}{json.dumps(str(key))}: ", False
            yield from _pieces(item, mask, str(key), inner)
        yield newline + "}", False
    elif isinstance(node, (list, tuple)) and node:
        yield "[", False
        for number, item in enumerate(node):
            yield f"{',' if number else ''}{inner}", False
            yield from _pieces(item, mask, name, inner)
        yield newline + "]", False
    elif mask.named(name, node) == node:
        yield json.dumps(node), False
    else:
        yield name, True
