"""Launchers in Python: their commands in every branch, with positions; nothing is run."""

from __future__ import annotations

import os
import shlex
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_plan.importers.jobs import Command, ScriptReading
from precision_plan.importers.python.reader import read_launcher
from precision_plan.importers.texts import Source

FIXTURES = Path(__file__).parents[2] / "fixtures" / "launchers"


def read(text: str) -> ScriptReading:
    return read_launcher(Source("run.py", textwrap.dedent(text).encode()))


def shown(command: Command) -> list[str]:
    return [word.shown for word in command.words]


SNIPPETS = {
    "a list": """
        args = ["--bf16", "--lr", str(1e-5), "--n", f"{2 + 3}"]
        args += ["--save", "a b"]
        args.append("--x")
        args.extend(["--y", "z"])
        subprocess.run(["torchrun", "--nproc-per-node", "8", "pretrain_gpt.py", *args], check=True)
    """,
    "a text for a shell": r"""
        base = "/data"
        text = (
            "--bf16 "  # the format
            f"--save {base}/a --name 'two words' "
            '--quoted "x \\"y\\" z" '
            f"--braces {{}} --n {len('abc')} "
            "--tail"
        )
        os.system("cd /tmp && python pretrain_gpt.py " + text.strip() + "; echo done")
    """,
    "lines of one text": '''
        flags = """
          --bf16
          --lr 1e-4
        """
        os.system(f"python pretrain_gpt.py {' '.join(flags.split('x'))}") if False else None
        os.system("python pretrain_gpt.py --a " + "b")
    ''',
    "functions and loops": """
        def flags(name, *, size=4, deep: bool = False):
            found = f"--name {name} --size {size} "
            if deep:
                return found + "--deep "
            return found

        parts = []
        for key, value in [("lr", 1), ("wd", 0.5)]:
            parts.append(f"--{key} {value}")
        command = "python pretrain_gpt.py " + flags("x") + flags("y", deep=True, size=2)
        subprocess.check_call(command + " ".join(parts), shell=True)
    """,
    "quoting": """
        value = 'it is "quoted" here'
        os.system(f"python pretrain_gpt.py --v {shlex.quote(value)}")
        subprocess.Popen(shlex.join(["python", "pretrain_gpt.py", "--v", "a b"]), shell=True)
    """,
    "mappings and conditions": """
        sizes = {"small": 2, "large": 8}
        kind = "large" if sizes["small"] > 4 else "small"
        n = sizes[kind] or 1
        big = n >= 2 and not n == 3
        if big and kind in ("small", "tiny"):
            os.system(f"python pretrain_gpt.py --n {n} --k {kind!s}")
        elif kind:
            os.system("python pretrain_gpt.py --wrong")
        match kind:
            case "large":
                os.system("python pretrain_gpt.py --large")
            case "small" | "tiny":
                os.system("python pretrain_gpt.py --small")
    """,
}


def started(text: str) -> list[list[str]]:
    """What Python starts: it runs the text with functions that only take notes."""
    notes: list[list[str]] = []

    def note(command: Any, **_: Any) -> None:
        if not isinstance(command, str):
            notes.append(list(command))
            return
        for part in command.replace("&&", ";").split(";"):
            words = shlex.split(part)
            if words:
                notes.append(words)

    process = SimpleNamespace(run=note, check_call=note, Popen=note)
    names = {"subprocess": process, "os": SimpleNamespace(system=note), "shlex": shlex}
    exec(textwrap.dedent(text), names)
    return notes


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_reader_and_python_agree(name: str) -> None:
    found = read(SNIPPETS[name])
    wanted = started(SNIPPETS[name])
    assert wanted
    assert [shown(command) for command in found.commands] == wanted
    assert all(word.known for command in found.commands for word in command.words)
    assert not [each for each in found.leftovers if each.kind != "unreached"]


def test_every_character_knows_where_it_stands() -> None:
    text = (
        'args = (\n    "--bf16 "  # one\n    f"--save {base}/ü/{name} "\n'
        "    '--fp8-recipe' \" mxfp8\"\n)\n"
        'import os\nos.system("python pretrain_gpt.py " + args)\n'
    )
    (command,) = read(text).commands
    places = {word.shown: word.origin for word in command.words}
    lines = text.splitlines()
    for word in ("--bf16", "--save", "--fp8-recipe", "mxfp8", "pretrain_gpt.py"):
        at = places[word]
        assert lines[at.line - 1][at.column - 1 :].startswith(word)
    path = next(word for word in command.words if "ü" in word.shown)
    assert path.shown == "${base}/ü/${name}"
    assert (path.origin.line, path.origin.column) == (3, lines[2].index("base") + 1)
    after = path.origin_at(len("${base}/"))
    assert lines[after.line - 1][after.column - 1] == "ü"


def test_parameters_have_their_defaults_and_are_changed_one_at_a_time() -> None:
    path = FIXTURES / "tiny_moe.py"
    found = read_launcher(Source(str(path), path.read_bytes()))
    assert [source.file for source in found.sources] == [
        str(path), os.path.relpath(FIXTURES / "models" / "tiny-moe.py"),
    ]  # fmt: skip
    ways = {tuple(map(str, each.branches)): each for each in found.commands}
    assert next(iter(ways)) == ()
    assert set(ways) == {
        (),
        ("options.short",),
        ("options.low_precision", "options.machine == 'B200'"),
        ("options.low_precision",),
    }
    usual = shown(ways[()])
    assert usual[:3] == ["ray", "job", "submit"]
    assert usual[usual.index("--save-interval") + 1] == "50"
    assert usual[usual.index("--num-layers") + 1] == "4"
    assert usual[usual.index("--prompt-data") + 1] == "data/with space.jsonl"
    assert usual[usual.index("--actor-num-gpus-per-node") + 1] == "8"
    assert "--eval-interval" in usual
    assert '"NVTE_DEBUG": "0"' in usual[3]
    assert '"MASTER_ADDR": "${MASTER_ADDR}"' in usual[3]
    short = shown(ways[("options.short",)])
    assert short[short.index("--save-interval") + 1] == "5"
    assert "--eval-interval" not in short
    low = shown(ways[("options.low_precision",)])
    assert low[low.index("--fp8-recipe") + 1] == "blockwise"
    assert '"NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1"' in low[3]
    assert "/mnt/store/tiny-moe-fp8" in low
    other = shown(ways[("options.low_precision", "options.machine == 'B200'")])
    assert other[other.index("--fp8-recipe") + 1] == "mxfp8"
    assert found.leftovers == ()


def test_what_a_class_does_first_has_the_name_of_its_object() -> None:
    found = read(
        """
        @dataclass
        class Options:
            name: str = "a"
            folder: str | None = None
            count: int = 0
            size: int = 2
            deep: bool = False

            def __post_init__(self):
                self.folder = self.folder or f"/data/{self.name}"
                self.size = self.size * 2 if self.deep else self.size

        def main(options: Options):
            os.system(f"python pretrain_gpt.py --save {options.folder} --n {options.size} "
                      f"--count {options.count or options.recipe.count}")
        """
    )
    assert [(shown(each)[3:], list(map(str, each.branches))) for each in found.commands] == [
        (["/data/a", "--n", "2", "--count", "${options.recipe.count}"], []),
        (["/data/a", "--n", "2", "--count", "${options.count}"], ["options.count"]),
        (["/data/a", "--n", "4", "--count", "${options.recipe.count}"], ["options.deep"]),
    ]


def test_no_way_contradicts_itself() -> None:
    found = read(
        """
        @dataclass
        class Options:
            kind: str = "a"

        def main(options: Options):
            text = "--x" if options.kind in ("b", "c") else "--y"
            if options.kind == "c":
                text += " --c"
            match options.kind:
                case "d" | "b":
                    text += " --late"
                case "a":
                    text += " --usual"
            os.system("python pretrain_gpt.py " + text)
        """
    )
    assert {tuple(shown(each)[2:]) for each in found.commands} == {
        ("--y", "--usual"), ("--x", "--late"), ("--y", "--late"), ("--y",),
    }  # fmt: skip


def test_a_condition_that_nobody_knows_is_decided_once() -> None:
    found = read(
        """
        import os, sys
        args = "--bf16 "
        if len(sys.argv) > 3:
            args += "--a "
        if len(sys.argv) > 3:
            args += "--b "
        os.system("python pretrain_gpt.py " + args)
        """
    )
    assert [(shown(each)[3:], [str(way) for way in each.branches]) for each in found.commands] == [
        (["--a", "--b"], ["len(sys.argv) > 3"]), ([], ["not: len(sys.argv) > 3"]),
    ]  # fmt: skip


def test_environments() -> None:
    found = read(
        """
        import os, subprocess
        os.environ["NVTE_DEBUG"] = "1"
        subprocess.run(["python", "pretrain_gpt.py", "--a"])
        subprocess.run(["python", "pretrain_gpt.py", "--b"], env={**os.environ, "X": "y"})
        os.system("export A=1 && B=2 python pretrain_gpt.py --c")
        """
    )
    env = {
        shown(each)[-1]: {name: text.shown for name, text in each.env.items()}
        for each in found.commands
    }
    assert env["--a"] == {"NVTE_DEBUG": "1"}
    assert env["--b"] == {"NVTE_DEBUG": "1", "X": "y"}
    assert env["--c"] == {"NVTE_DEBUG": "1", "A": "1", "B": "2"}


def test_what_is_left_over() -> None:
    found = read(
        """
        import os
        def helper():
            return 1
            never()
        variables = {name: "1" for name in os.listdir()}
        tools.execute_train("--bf16", megatron_model_type="no-such-model", extra_env_vars=variables)
        """
    )
    kinds = {(each.kind, each.origin.line) for each in found.leftovers}
    assert kinds == {("unreached", 5), ("arguments", 7), ("source", 7)}
    (command,) = found.commands
    assert "$(model_args no-such-model)" in shown(command)
    assert set(found.tokens.values()) == {"read", "left"}


def test_what_is_no_python() -> None:
    found = read("def f(:\n  pass\n")
    (diagnostic,) = found.diagnostics
    assert diagnostic.id == "PP960"
    assert diagnostic.origin.line == 1
    assert read("x = " + "(" * 5000).diagnostics[0].id == "PP960"
    deep = read("x = " + "+".join("a" * 9000))
    messages = [each.message for each in deep.diagnostics]  # where Python itself refuses it
    assert messages in ([], ["the file cannot be parsed: it is nested too deeply"])
    assert [each.kind for each in deep.leftovers] == ([] if messages else ["limit"])


def test_long_chains_are_not_followed_to_their_end() -> None:
    found = read("if a:\n    x = 1\n" + "elif b:\n    x = 2\n" * 1500)
    assert [each.kind for each in found.leftovers if each.kind != "unreached"] == ["limit"]
    assert set(found.tokens.values()) == {"left", "read"}


def test_many_ways_are_bounded() -> None:
    lines = ["import os", "a = ''"]
    lines += [f"if f{number}():\n    a += ' --x{number}'" for number in range(40)]
    found = read("\n".join([*lines, "os.system('python pretrain_gpt.py' + a)", ""]))
    assert 0 < len(found.commands) <= 16
    assert [each.kind for each in found.leftovers] == ["limit"]
    endless = read("import os\ndef f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nf(1)\n")
    assert endless.commands == ()


ATOMS = st.sampled_from(
    ["x", "1", "'a b'", 'f"--n {x} {y!r:>4}"', "[1, *y]", "{'a': x, **y}", "f(x)", "x.y[0]", "-x",
     "1 < x < 3",
     "lambda: x", "x if y else 'z'", "(x or y)", "x == y", "os.environ['A']", '"""t\n"""', "b'x'",
     "f'{x}' \"{y}\" rf'\\d{x}'", "' '.join(y)", "(x := 3)", "[i for i in y]", "not x", "x + y"]
)  # fmt: skip
STATEMENTS = st.one_of(
    st.builds("x = {}".format, ATOMS),
    st.builds("x += {}".format, ATOMS),
    st.builds("y = {}".format, ATOMS),
    st.builds("if {}:\n    y = {}\nelse:\n    x = {}".format, ATOMS, ATOMS, ATOMS),
    st.builds("for i in {}:\n    x = i".format, ATOMS),
    st.builds("match {}:\n    case 'a' | 1:\n        x = {}\n    case _:\n        pass".format,
              ATOMS, ATOMS),
    st.builds("os.system({})".format, ATOMS),
    st.builds("subprocess.run({}, env={})".format, ATOMS, ATOMS),
    st.builds("U.execute_train({}, extra_env_vars={})".format, ATOMS, ATOMS),
    st.builds("def f(a, b={}):\n    return {}".format, ATOMS, ATOMS),
    st.builds("assert {}".format, ATOMS),
    st.builds("with {}:\n    x = {}".format, ATOMS, ATOMS),
    st.builds("try:\n    x = {}\nexcept E:\n    y = 2".format, ATOMS),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(STATEMENTS, max_size=7))
def test_nothing_that_a_file_says_is_an_error(statements: list[str]) -> None:
    found = read_launcher(Source("run.py", "\n".join(statements).encode()))
    assert found.sources[0].file == "run.py"
    assert not found.diagnostics
