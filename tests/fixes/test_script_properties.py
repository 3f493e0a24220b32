"""Whatever way options are laid out, the fixed script starts the same but for what was fixed.

Bash itself tells what the scripts start, before and after; the scripts are made here.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.api.fixing import fix
from precision_plan.render.diff import unified
from tests._hypothesis import examples

HEAD = (
    "# precision-plan: framework=megatron-lm gpu=h100 megatron_core=0.16.1 "
    "transformer_engine=2.9.0\n"
)
USED = (
    "--bf16",
    "--num-layers 2",
    "--fp8-format hybrid",
    "--hidden-size 64",
    "--tensorboard-dir 'x y'",
)
UNUSED = ("--fp8-interval 4", "--muon-fp32-matmul-prec high", '--fp8-interval "2"')

pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("git") is None, reason="needs bash and git"
)


@st.composite
def option_lists(draw: st.DrawFn) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(USED), unique=True, min_size=1))
    unused = draw(st.lists(st.sampled_from(UNUSED[:2]), unique=True, min_size=1))
    return draw(st.permutations([*chosen, *unused]))


@st.composite
def arrays(draw: st.DrawFn, options: list[str]) -> str:
    text = "ARGS=("
    for option in options:
        before = draw(st.sampled_from(["\n  ", " ", "\n\t", "\n  # why not\n  "]))
        after = draw(st.sampled_from(["", "", "  # 8% faster", "  # größer"]))
        text += before + option + after
        if after:
            text += "\n"
    return f"{text}\n)\n" + 'torchrun pretrain_gpt.py "${ARGS[@]}"\n'


@st.composite
def commands(draw: st.DrawFn, options: list[str]) -> str:
    text = "torchrun pretrain_gpt.py"
    for option in options:
        before = draw(st.sampled_from([" ", " \\\n  ", "  \\\n\t"]))
        between = draw(st.sampled_from([" ", " \\\n      ", "  "]))
        name, space, value = option.partition(" ")
        text += before + name + (between + value if space else "")
    return text + draw(st.sampled_from(["\n", " 2>&1\n", " \\\n  2>&1\n", " && echo done\n"]))


@st.composite
def texts(draw: st.DrawFn, options: list[str]) -> str:
    options = [option for option in options if "'" not in option]
    between = draw(st.sampled_from([" ", " \\\n  ", "\n   "]))
    ends = draw(st.sampled_from([("", ""), ("\n  ", "\n"), (" ", " ")]))
    return f'ARGS="{ends[0]}{between.join(options)}{ends[1]}"\ntorchrun pretrain_gpt.py $ARGS\n'


@st.composite
def scripts(draw: st.DrawFn) -> str:
    options = draw(option_lists())
    layout = draw(st.sampled_from([arrays, commands, texts]))
    return HEAD + "set -e\n" + draw(layout(options)) + draw(st.sampled_from(["", "echo end\n"]))


def started(folder: Path) -> list[str]:
    """The words that bash starts the launch with."""
    said = 'torchrun() { printf "%s\\0" "$@"; }\n' + (folder / "run.sh").read_text()
    done = subprocess.run(["bash", "-c", said], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")


DELETED = frozenset({*UNUSED[0].split(), *UNUSED[1].split(), "\\", "#", "8%", "faster", "größer"})
"""The unused options, backslashes that are one too many, and comments on their lines."""


def words_of(text: str) -> Counter[str]:
    return Counter(text.replace('"', ' " ').split())


def without_unused(words: list[str]) -> list[str]:
    left, at = [], 0
    while at < len(words):
        if words[at] in ("--fp8-interval", "--muon-fp32-matmul-prec"):
            at += 2
            continue
        left.append(words[at])
        at += 1
    return left


@examples(60)
@given(text=scripts())
def test_bash_starts_the_same_without_what_is_unused(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "run.sh"
        script.write_text(text)
        before = started(folder)
        (change,) = fix([script]).proposed
        diff = unified("run.sh", change.before, change.after)
        subprocess.run(["git", "apply", "-"], input=diff.encode(), check=True, cwd=folder)
        assert script.read_text() == change.after
        assert started(folder) == without_unused(before)
        letters = iter(text)
        assert all(letter in letters for letter in change.after)  # nothing but deletions
        assert (words_of(text) - words_of(change.after)).keys() <= DELETED
        assert not words_of(change.after) - words_of(text)
