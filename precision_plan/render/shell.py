"""A bash script that carries the lowered settings: arrays of arguments, environment, the command.

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
    from precision_plan.plan.compiled import Compiled

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"(?!.*\.py$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
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
    blocks += _Script(compiled, mask).blocks()
    return "\n\n".join(block for block in blocks if block) + "\n"


def quote(word: str) -> str:
    """``word`` for bash; one that a terminal would act upon is written in ``$'...'`` escapes."""
    word = word.replace("\0", "")  # no argument can hold it
    if printable(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_ansi_c, word.encode("utf-8", "replace"))) + "'"


def _ansi_c(byte: int) -> str:
    if 32 <= byte < 127 and byte not in b"\\'":
        return chr(byte)
    return f"\\x{byte:02x}"


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
    text = quote(f"{mask.text(compiled.name)}: this plan has errors and is not launched")
    return "\n".join([*lines, f"printf '%s\\n' {text} >&2", "exit 1"])


class _Script:
    """Writes the settings; remembers which secrets it had to splice into JSON."""

    def __init__(self, compiled: Compiled, mask: Mask) -> None:
        self.plan = compiled.plan
        self.lowering = compiled.lowering
        self.mask = mask
        self.spliced: list[str] = []

    def blocks(self) -> list[str]:
        if self.lowering is None:
            return []
        megatron, vllm, ray = self.lowering.megatron, self.lowering.vllm, self.lowering.ray
        own = ray.roles.get("train_actor", ray.roles.get("vllm_worker", megatron.env))
        blocks = [
            *(self._file(name, text) for name, text in megatron.files.items()),
            self._array("MEGATRON_ARGS", megatron.argv),
            self._array("VLLM_ARGS", vllm.passthrough or vllm.argv),
            f"RUNTIME_ENV_JSON={self._json(ray.runtime_env)}"
            if self._is_ray_job
            else self._exports(own),
            self._command(),
        ]
        if self.spliced:
            # Within $(...) bash would go on with an empty text where a variable is unset.
            names = " ".join(_demand(name) for name in dict.fromkeys(self.spliced))
            blocks.insert(0, f"{_JSON_TEXT}\n: {names}")
        return blocks

    @property
    def _files(self) -> Mapping[str, str]:
        return {} if self.lowering is None else self.lowering.megatron.files

    @property
    def _is_ray_job(self) -> bool:
        """A Ray job has a driver; a program of its own is one process per GPU."""
        return self.lowering is not None and "driver" in self.lowering.ray.roles

    # Files ------------------------------------------------------------------------------------
    def _file(self, name: str, text: str) -> str:
        """Writes a file that an argument names. Lowering leaves only printable ASCII in it."""
        end = _identifier(name)
        shown = self.mask.text(text)
        return f"# Every process must find it here.\ncat >{quote(name)} <<'{end}'\n{shown}{end}"

    # Arguments --------------------------------------------------------------------------------
    def _array(self, name: str, argv: Sequence[str]) -> str:
        if not argv:
            return ""
        return "\n".join([f"{name}=(", *(f"  {line}" for line in self._lines(argv)), ")"])

    def _lines(self, argv: Sequence[str]) -> Iterator[str]:
        """One flag with its values a line."""
        line: list[str] = []
        flag = ""
        for word, shown in zip(argv, self.mask.argv(argv), strict=True):
            if word.startswith("--"):
                if line:
                    yield " ".join(line)
                line, flag = [], word.partition("=")[0]
            if word in self._files:
                # Processes may start in other folders than this script.
                line.append(f'"$PWD"/{quote(word)}')
            elif word == shown:
                line.append(quote(word))
            else:
                line.append(self._without_secret(word, flag))
        if line:
            yield " ".join(line)

    def _without_secret(self, word: str, flag: str) -> str:
        """A word that holds a secret: a JSON object keeps the rest, any other is replaced whole."""
        if word.startswith("{"):
            try:
                return self._json(json.loads(word))
            except ValueError:
                pass
        if word.startswith(f"{flag}="):
            return f"{flag}={_demand(flag)}"
        return _demand(flag)

    # Environment ------------------------------------------------------------------------------
    def _exports(self, env: Mapping[str, str]) -> str:
        lines = []
        for name, value in env.items():
            if not _NAME.fullmatch(name):
                shown = printable(self.mask.text(name))
                lines.append(f"# not a name that bash can export: {shown}")
            elif self.mask.named(name, value) == value:
                lines.append(f"export {name}={quote(value)}")
            else:
                lines.append(f"export {name}={_demand(name)}")
        return "\n".join(lines)

    def _json(self, data: Any) -> str:
        """JSON as one bash word: quoted text with secrets spliced in."""
        word, literal = "", ""
        for piece, is_secret in self._pieces(data, "", "\n"):
            if not is_secret:
                literal += piece
                continue
            self.spliced.append(piece)
            word += shlex.quote(literal + '"') + f'"$(json_text "${_identifier(piece)}")"'
            literal = '"'
        return word + shlex.quote(literal)

    def _pieces(self, node: Any, name: str, newline: str) -> Iterator[tuple[str, bool]]:
        """``node`` as JSON in pieces; ``(NAME, True)`` stands for the secret of that name."""
        inner = newline + "  "
        if isinstance(node, Mapping) and node:
            yield "{", False
            for number, (key, item) in enumerate(node.items()):
                yield f"{',' if number else ''}{inner}{json.dumps(str(key))}: ", False
                yield from self._pieces(item, str(key), inner)
            yield newline + "}", False
        elif isinstance(node, (list, tuple)) and node:
            yield "[", False
            for number, item in enumerate(node):
                yield f"{',' if number else ''}{inner}", False
                yield from self._pieces(item, name, inner)
            yield newline + "]", False
        elif self.mask.named(name, node) == node:
            yield json.dumps(node), False
        else:
            yield name, True

    # Command ----------------------------------------------------------------------------------
    def _command(self) -> str:
        """The command that starts the program which the plan names, if it names one."""
        entrypoint, lowering = self.plan.launch.entrypoint, self.lowering
        if entrypoint is None or lowering is None:
            serves = lowering is not None and self.plan.software.framework == "vllm"
            return 'vllm serve "${VLLM_ARGS[@]}"' if serves else ""
        arrays = ["MEGATRON_ARGS"] if lowering.megatron.argv else []
        if self._is_ray_job:
            words = ["ray job submit", *self._address(), '--runtime-env-json="$RUNTIME_ENV_JSON"']
            words += ["--", f"python3 {_program(entrypoint)}"]
            arrays += ["VLLM_ARGS"] if lowering.vllm.passthrough else []
        else:
            nodes, gpus = self.plan.hardware.nodes, self.plan.hardware.gpus_per_node
            words = ["torchrun"]
            words += [f"--nnodes={nodes}"] if nodes else []
            words += [f"--nproc-per-node={gpus}"] if gpus else []
            # Where the nodes meet is not part of a plan: it is given to the script as arguments.
            words += ['"$@"', _program(entrypoint)]
        words += [f'"${{{name}[@]}}"' for name in arrays]
        return " \\\n  ".join(words)

    def _address(self) -> list[str]:
        address = self.plan.launch.ray_address
        if address is None:
            return []
        secret = self.mask.text(address) != address
        return [f"--address={_demand('RAY_ADDRESS') if secret else quote(address)}"]


def _program(entrypoint: str) -> str:
    """A file, or a module by its dotted name."""
    return f"-m {entrypoint}" if _MODULE.fullmatch(entrypoint) else quote(entrypoint)


def _demand(name: str) -> str:
    """The variable that must hold the secret of ``name``; bash stops with a word if it is unset."""
    return f'"${{{_identifier(name)}:?set {_identifier(name)}}}"'


def _identifier(name: str) -> str:
    upper = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return upper if _NAME.fullmatch(upper) else f"SECRET_{upper}"
