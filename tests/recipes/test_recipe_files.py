"""Every recipe as a file: what editors, Hydra and a person need to see in it."""

from __future__ import annotations

import re

from precision_plan.plan import SECTIONS


def _lines(conf, recipe):
    return (conf / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8").splitlines()


def test_hydra_header_and_editor_modeline(conf, recipe):
    # Hydra stops reading its header at the first line that is not a header, so it comes first.
    package, modeline = _lines(conf, recipe)[:2]
    assert package == "# @package _global_"
    assert modeline == "# yaml-language-server: $schema=../../schema/recipe.schema.json"


def test_comment_says_what_was_corrected(conf, recipe):
    lines = _lines(conf, recipe)
    comment = lines[2 : lines.index("defaults:")]
    assert all(line.startswith("#") for line in comment)
    assert len(" ".join(comment)) > 200


def test_title_source_and_maturity(plan):
    info = plan.recipe
    assert info.title
    assert info.source
    assert info.maturity in {"stable", "beta", "experimental"}
    assert any(re.match(r"[\w.-]+/[\w.-]+(@[\w.]+)?:\S+$", source) for source in info.source)


def test_short_and_narrow(conf, recipe):
    lines = _lines(conf, recipe)
    assert len(lines) <= 90
    breakable = [line for line in lines if " " in line.strip().partition(": ")[2]]
    assert [line for line in breakable if len(line) > 102] == []


def test_groups_before_own_settings(conf, recipe):
    """Defaults override groups in the order of the plan's sections and end with the recipe."""
    lines = _lines(conf, recipe)
    start = lines.index("defaults:") + 1
    entries = []
    for line in lines[start:]:
        if not line.startswith("  - "):
            break
        entries.append(line.removeprefix("  - "))
    assert entries[-1] == "_self_"
    groups = [re.fullmatch(r"override /(\w+): ([\w.-]+)", entry) for entry in entries[:-1]]
    names = [match[1] for match in groups]
    assert names == [section for section in SECTIONS if section in names]


def test_no_path_of_a_machine(plan):
    paths = [
        value
        for field, value in plan.set_fields()
        if field.startswith(("checkpoint.", "launch.", "weight_sync.")) and isinstance(value, str)
    ]
    assert [path for path in paths if path.startswith(("/", "~"))] == []
