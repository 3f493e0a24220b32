"""Which files lint takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.compose.discovery import discover, looks_like_recipe


@pytest.mark.parametrize(
    "text",
    [
        "# @package _global_\nanything: 1\n",
        "# comment\n#   @package   _global_\ndefaults: []\n",
        "recipe:\n  title: x\nother: 1\n",
        "training: {bf16: true}\noptimiser: {}\n",
        "training:\n  bf16: true\n",
    ],
)
def test_recipes_are_known_by_their_marks(text: str) -> None:
    assert looks_like_recipe(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n- b\n",
        "name: ci\non: push\nenv: {A: 1}\njobs: {}\n",
        "services:\n  recipe: x\n",
        "title: notes\ntext: 'training: x'\n",
        "recipes: [a]\n",
    ],
)
def test_other_yaml_is_left_alone(text: str) -> None:
    assert not looks_like_recipe(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "conf/config.yaml": "defaults: [_self_]\n",
        "conf/recipes/a.yaml": "broken: [\n",
        "conf/recipes/deep/b.yml": "x: 1\n",
        "conf/hardware/h100.yaml": "gpu: h100\n",
        "conf/notes/c.yaml": "text: x\n",
        "loose/d.yaml": "# @package _global_\n",
        "loose/e.yaml": "jobs: {}\n",
        "loose/.hidden/f.yaml": "# @package _global_\n",
        "loose/g.txt": "# @package _global_\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(root: Path, paths: tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to(root)) for path in paths]


def test_a_folder_is_searched(tree: Path) -> None:
    found = discover([tree])
    assert names(tree, tuple(each.path for each in found.candidates)) == [
        "conf/hardware/h100.yaml",
        "conf/recipes/a.yaml",
        "conf/recipes/deep/b.yml",
        "loose/d.yaml",
    ]
    assert names(tree, found.skipped) == ["conf/notes/c.yaml", "loose/e.yaml"]
    conf = tree / "conf"
    assert [(each.section, each.conf) for each in found.candidates] == [
        ("hardware", conf), (None, conf), (None, conf), (None, None),
    ]  # fmt: skip


def test_a_named_file_is_taken_whatever_it_holds(tree: Path) -> None:
    found = discover([tree / "loose/e.yaml", tree / "loose"])
    assert names(tree, tuple(each.path for each in found.candidates)) == [
        "loose/e.yaml",
        "loose/d.yaml",
    ]
    assert found.skipped == ()


def test_a_file_is_taken_once(tree: Path) -> None:
    (tree / "loose/link.yaml").symlink_to(tree / "loose/d.yaml")
    found = discover([tree / "loose", tree, tree / "loose/d.yaml"])
    paths = [each.path.name for each in found.candidates]
    assert len(paths) == len(set(paths)) == 4


def test_what_is_not_there_or_no_yaml_is_said(tree: Path) -> None:
    found = discover([tree / "nope", tree / "loose/g.txt"])
    assert found.missing == (str(tree / "nope"),)
    assert names(tree, found.others) == ["loose/g.txt"]
    assert found.candidates == ()


def test_an_empty_path_is_not_the_current_folder(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert discover([""]).missing == ("",)
    assert len(discover(["."]).candidates) == 4


def test_links_in_a_circle_end(tree: Path) -> None:
    (tree / "loose/loop").symlink_to(tree, target_is_directory=True)
    assert len(discover([tree]).candidates) == 4


def test_a_named_file_that_is_no_recipe_may_be_passed_over(tree: Path) -> None:
    named = ["conf/recipes/a.yaml", "conf/config.yaml", "conf/hardware/h100.yaml", "loose/d.yaml",
             "loose/e.yaml", "loose/g.txt", "nope"]  # fmt: skip
    found = discover([tree / name for name in named], skip_others=True)
    assert names(tree, tuple(each.path for each in found.candidates)) == [
        "conf/recipes/a.yaml",
        "conf/hardware/h100.yaml",
        "loose/d.yaml",
    ]
    assert names(tree, found.skipped) == ["loose/e.yaml", "loose/g.txt"]
    assert (found.foreign, found.missing) == ((), (str(tree / "nope"),))
