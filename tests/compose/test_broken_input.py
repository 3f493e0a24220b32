"""Whatever a file holds: one clear message with a position, never an exception, never a wait."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from precision_plan.compose import Composition, build_plan
from precision_plan.plan.codes import is_broken_input

Compose = Callable[..., Composition]
Write = Callable[[str, "str | bytes"], Path]

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 10)}]\n"
    for last, name in zip("abcdef", "bcdefg", strict=True)
)
MERGE_BOMB = "a: &a {}\n" + "".join(
    f"{name}: &{name}\n  <<: [{', '.join([f'*{last}'] * 10)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)

BROKEN: dict[str, tuple[str | bytes, str, str]] = {
    "bad indentation": ("training:\n  bf16: true\n fp16: true\n", "PP001", ":3:2"),
    "unclosed list": ("training: [a, b\n", "PP001", ":2:1"),
    "unclosed quote": ("training: 'a\n", "PP001", ":2:1"),
    "tab": ("training:\n\tbf16: true\n", "PP001", ":2:1"),
    "two documents": ("a: 1\n---\nb: 2\n", "PP001", ":2:1"),
    "unknown alias": ("training: *nowhere\n", "PP001", ":1:11"),
    "number that is none": ("training: {seq_length: !!int x}\n", "PP001", ":1:24"),
    "bare merge key": ("training: {a: <<}\n", "PP001", ":1:15"),
    "key that is a list": ("training: {[a]: 1}\n", "PP001", ":1:12"),
    "empty": ("", "PP011", ""),
    "only comments": ("# @package _global_\n# nothing\n", "PP011", ""),
    "null": ("null\n", "PP011", ""),
    "list": ("- a\n- b\n", "PP005", ":1:1"),
    "scalar": ("hello\n", "PP005", ":1:1"),
    "section is a list": ("training:\n  - bf16\n", "PP005", ":1:1"),
    "section is a scalar": ("a: 1\ntraining: fp8\n", "PP005", ":2:1"),
    "section is null": ("training:\n", "PP005", ":1:1"),
    "duplicate": ("training:\n  bf16: true\n  bf16: false\n", "PP008", ":3:3"),
    "duplicate section": ("training: {}\nmodel: {}\ntraining: {}\n", "PP008", ":3:1"),
    "python object": ("training: !!python/object/apply:os.system [ls]\n", "PP015", ":1:11"),
    "own tag": ("training: {bf16: !yes true}\n", "PP015", ":1:18"),
    "binary tag": ("training: {bf16: !!binary aGk=}\n", "PP015", ":1:18"),
    "target": ("training:\n  x: {y: {_target_: os.system}}\n", "PP015", ":2:11"),
    "hydra": ("hydra:\n  callbacks: {}\n", "PP015", ":1:1"),
    "many digits": ("training: {x: " + "1" * 5000 + "}\n", "PP001", ":1:15"),
    "many entries": ("defaults: [" + "base, " * 101 + "]\n", "PP012", ":1:11"),
    "many choices": ("defaults: [{/model: [" + "small, " * 101 + "]}]\n", "PP016", ":1:12"),
    "large value": (f"training:\n  x: {'a' * 1_000_000}\n", "PP012", ":2:6"),
    "large file": (b"#" * 1_100_000, "PP012", ""),
    "large override of nesting": ("a: " + "[" * 500 + "]" * 500, "PP012", ":1:"),
    "deep flow": ("{a: " * 5000, "PP012", ":1:"),
    "alias bomb": (BOMB, "PP012", ":"),
    "merge bomb": (MERGE_BOMB, "PP012", ":"),
    "alias to itself": ("training: &t {x: *t}\n", "PP012", ":1:11"),
    "merge of itself": ("training: &t\n  <<: *t\n", "PP012", ":1:11"),
    "binary": (bytes(range(256)) * 8, "PP010", ":"),
    "NUL": (b"training:\n  x: a\0b\n", "PP010", ":2"),
    "control character": (b"training:\n  x: a\x07b\n", "PP010", ":"),
    "latin-1": ("training:\n  x: caf\xe9\n".encode("latin-1"), "PP010", ":2"),
    "UTF-16": ("training: {}\n".encode("utf-16"), "PP010", ""),
    "defaults is a mapping": ("defaults: {model: small}\n", "PP016", ":1:11"),
    "defaults entry of two": ("defaults:\n  - {model: a, training: b}\n", "PP016", ":2:5"),
    "defaults number": ("defaults:\n  - override /model: 4\n", "PP016", ":2:5"),
    "unknown keyword": ("defaults:\n  - overide /model: small\n", "PP016", ":2:5"),
    "override too early": (
        "defaults:\n  - override /model: small\n  - base\n  - _self_\n", "PP016", ":2:5",
    ),
    "override of nothing": ("defaults:\n  - override /optimizer: adam\n", "PP016", ":2:5"),
    "override without slash": ("defaults:\n  - override model: small\n", "PP016", ":2:5"),
    "group again": ("defaults:\n  - /model: small\n", "PP016", ":2:5"),
    "self twice": ("defaults: [_self_, _self_]\nmodel: {}\n", "PP016", ":1:20"),
    "includes itself": ("defaults: [broken]\n", "PP007", ":1:12"),
    "missing choice": ("defaults:\n  - override /model: smal\n", "PP006", ":2:5"),
    "missing recipe": ("defaults: [bas]\n", "PP006", ":1:12"),
    "header of three words": ("# @package a b\nmodel: {}\n", "PP016", ":1:1"),
    "environment": ("training: {x: '${oc.env:HOME}'}\n", "PP014", ":1:12"),
    "dangling reference": ("training: {x: '${model.nope}'}\n", "PP014", ":1:12"),
    "circular reference": ("training: {x: '${.y}', y: '${.x}'}\n", "PP014", ":1:"),
    "long reference": (
        "training:\n" + "".join(f"  k{i}: '${{.k{i + 1}}}'\n" for i in range(5000)), "PP014", ":",
    ),
    "roundabout reference": (
        "training: {a: '${.b.x}', b: '${.a.x}', c: '${.a.q}'}\n", "PP014", ":1:",
    ),
    "unreadable reference": ("training: {x: '${a'}\n", "PP014", ":1:12"),
}  # fmt: skip

SEVERAL = {"long reference", "roundabout reference"}
"""Cases with more than one value at fault."""


@pytest.mark.parametrize("case", BROKEN)
def test_one_clear_message(case: str, compose: Compose, write: Write) -> None:
    content, code, position = BROKEN[case]
    write("recipes/broken.yaml", content)
    composition = compose("broken")
    found = [each for each in composition.diagnostics if is_broken_input(each)]
    assert {each.id for each in found} == {code}
    assert len(found) == 1 or case in SEVERAL
    assert str(found[0].origin).startswith("conf/recipes/broken.yaml" + position)
    assert "\n" not in found[0].message and len(found[0].message) < 300
    assert code != "PP001" or found[0].fix or case in ("two documents", "key that is a list")
    assert [each.id for each in build_plan(composition).diagnostics if each.id == "PP013"] == []


def test_all_problems_of_a_file_at_once(compose: Compose, write: Write) -> None:
    write(
        "recipes/broken.yaml",
        "model: {name: a, name: b}\ntraining: [x]\nrollout: {a: !b c}\nhardware: {_target_: x}\n",
    )
    found = [(each.id, each.origin.line) for each in compose("broken").diagnostics]
    assert sorted(found) == [("PP005", 2), ("PP008", 1), ("PP015", 3), ("PP015", 4)]


def test_reference_bomb_stays_small(compose: Compose, write: Write) -> None:
    lines = ["training:", "  k0: " + "x" * 1000]
    lines += [f"  k{i}: '{f'${{.k{i - 1}}}' * 10}'" for i in range(1, 12)]
    lines += [f"  m{i}: ['${{..m{i - 1}}}', '${{..m{i - 1}}}']" for i in range(1, 40)]
    write("recipes/broken.yaml", "\n".join([*lines, "  m0: [1, 2]", ""]))
    found = compose("broken").diagnostics
    assert [(each.id, each.field.partition(".")[2]) for each in found] == [
        ("PP012", "k2"),  # those that refer to it are not reported again
        ("PP012", found[1].field.partition(".")[2]),
    ]


def test_defaults_that_multiply(compose: Compose, write: Write) -> None:
    for index in range(40):
        write(f"recipes/r{index}.yaml", f"defaults: [r{index + 1}, r{index + 1}, _self_]\n")
    write("recipes/r40.yaml", "model: {name: x}\n")
    assert [each.id for each in compose("r0").diagnostics] == ["PP012"]


def test_large_files_take_no_long_time(compose: Compose, write: Write) -> None:
    """Each of these took minutes with a step that is quadratic in the size of the file."""
    keys = "\n".join(f"  k{index}: [{index}, x]" for index in range(4000))
    marks = "# precision-plan: ignore[" * 30_000
    write("training/large.yaml", keys.replace("  k", "k"))
    write("recipes/large.yaml", f"training:\n{keys}\n{marks}\n")
    composition = compose("large", "training=large")
    assert len(composition.data["training"]) == 4000
    assert str(composition.origins["training.k9"]) == "conf/recipes/large.yaml:11:3"
    result = build_plan(composition)
    assert sum(found.id == "PP002" for found in result.diagnostics) == 4000
    write("recipes/large.yaml", "\n".join(f"a: {index} # precision-plan: ignore[PP1] x"
                                          for index in range(9000)))  # fmt: skip
    found = compose("large").diagnostics
    assert len(found) == 8999 and {each.id for each in found} == {"PP008"}


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket has at most about 100 characters
        listener.bind(path.name)
        os.chdir(here)


NOT_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "named pipe": (make_fifo, "it is a named pipe"),
    "socket": (make_socket, "No such device or address".lower()),
    "folder": (lambda path: path.mkdir(), "it is a folder"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
    "link loop": (lambda path: path.symlink_to(path), "loop"),
    "broken link": (lambda path: path.symlink_to(path.with_name("nowhere")), "leads nowhere"),
}


@pytest.mark.parametrize("case", NOT_FILES)
def test_what_is_no_file_is_not_read(case: str, compose: Compose, conf: Path) -> None:
    make, reason = NOT_FILES[case]
    make(conf / "recipes" / "odd.yaml")
    (found,) = compose("odd").diagnostics
    assert found.id == "PP010" and reason in found.message
    assert str(found.origin) == "conf/recipes/odd.yaml"


def test_no_permission(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    assert {each.message.partition(": ")[2] for each in compose("base").diagnostics} == {
        "permission denied"
    }


@pytest.mark.parametrize(
    "recipe",
    [
        "nowhere.yaml",
        "no/where.yaml",
        Path("nowhere"),
        "a\0b.yaml",
        "x" * 5000 + ".yaml",
        "conf/",
        "/",
    ],
)
def test_a_path_that_is_no_recipe(recipe: str | Path, compose: Compose) -> None:
    (found,) = compose(recipe).diagnostics
    assert found.id == "PP010" and is_broken_input(found)


def test_what_editors_leave_in_files_is_read(compose: Compose, write: Write) -> None:
    write("recipes/odd.yaml", b"\xef\xbb\xbf# @package _global_\r\ntraining:\r\n  bf16: true\r\n")
    composition = compose("odd")
    assert composition.data["training"] == {"bf16": True}
    assert str(composition.origins["training.bf16"]) == "conf/recipes/odd.yaml:3:3"


def test_a_file_that_changes_is_read_again(compose: Compose, write: Write) -> None:
    write("recipes/new.yaml", "model: {num_layers: 1}\n")
    assert compose("new").data["model"] == {"num_layers": 1}
    write("recipes/new.yaml", "model: {num_layers: 22}\n")
    assert compose("new").data["model"] == {"num_layers": 22}


OVERRIDES: dict[str, tuple[str, str, str]] = {
    "blank": ("a b=1", "PP009", "cannot read"),
    "no value": ("training.bf16", "PP009", "cannot read"),
    "no key": ("=1", "PP009", "names no key"),
    "unclosed": ("training.bf16=[1", "PP009", "cannot read"),
    "sweep": ("training.bf16=true,false", "PP009", "sweep"),
    "null choice": ("hardware=null", "PP009", "cannot be set to null"),
    "number as choice": ("hardware=8", "PP009", "no name of a choice"),
    "unset": ("~training.nope", "PP009", "not set"),
    "another value": ("~training.bf16=false", "PP009", "has another value"),
    "set already": ("+training.bf16=false", "PP009", "set already"),
    "group added": ("+hardware=b200", "PP016", "have an entry for hardware already"),
    "group forced": ("++hardware=b200", "PP009", "by force"),
    "no such choice": ("hardware=b20", "PP006", "no choice for hardware named 'b20'"),
    "no such group": ("nope/nope=1", "PP006", "there is no group nope/nope"),
    "no such package": ("hardware@x=b200", "PP016", "no defaults list has an entry"),
    "target": ("training._target_=os.system", "PP015", "asks for code"),
    "target within": ("training.x={a: [{_target_: os.system}]}", "PP015", "asks for code"),
    "resolver": ("training.x=${oc.env:HOME}", "PP014", "resolver oc.env is refused"),
    "many digits": ("training.x=" + "1" * 5000, "PP012", "a number without end"),
    "megabyte": ("training.x=" + "a" * 1_000_000, "PP012", "1,000,011 characters"),
    "depth": ("training.x=" + "[" * 3000 + "]" * 3000, "PP012", "too deeply"),
    "section erased": ("training=[1]", "PP009", "no name of a choice"),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_broken_overrides(case: str, compose: Compose) -> None:
    text, code, message = OVERRIDES[case]
    (found,) = compose("base", text).diagnostics
    assert found.id == code and message in found.message
    assert found.origin.layer == "override" and len(found.origin.file) <= 80
    assert "\n" not in found.message and len(found.message) < 300


def test_broken_overrides_are_told_together(compose: Compose) -> None:
    found = compose("bas", "hardware=b20", "a b=1", "~training.nope", "training.x=[1").diagnostics
    assert sorted(each.id for each in found) == ["PP006", "PP006", "PP009", "PP009", "PP009"]


def test_a_secret_is_not_repeated(compose: Compose) -> None:
    texts = ("env.all.HF_TOKEN=[hf_abc", "env.all.HF_TOKEN=true", "env.all.HF_TOKEN='hf_abc'",
             "+env.all.HF_TOKEN=hf_abc", "~env.all.HF_TOKEN=hf_abd")  # fmt: skip
    composition = compose("base", *texts)
    found = (*composition.diagnostics, *build_plan(composition).diagnostics)
    assert len(found) == 3 and "hf_ab" not in repr(found) + repr(composition.origins)
