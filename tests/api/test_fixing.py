"""Which files a fix may touch, and when a fix is left to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.api.fixing import fix
from precision_plan.plan.fixes import Fixes

HEAD = "recipe: {title: a recipe, source: [here], maturity: stable}\n"
CONFIG = """\
defaults:
  - training: null
  - hardware: null
  - _self_
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    for name in ("recipes", "training", "hardware"):
        (folder / name).mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def recipe(conf: Path, text: str, name: str = "r") -> Path:
    path = conf / "recipes" / f"{name}.yaml"
    path.write_text(text)
    return path


def texts(fixes: Fixes) -> dict[str, str]:
    return {change.name: change.after for change in fixes.changes}


def reasons(fixes: Fixes) -> list[tuple[str, str]]:
    return [(each.diagnostic.id, each.why) for each in fixes.unfixed]


USES_FP8 = f"""\
# @package _global_
defaults:
  - override /training: fp8
  - _self_
{HEAD}"""


def test_a_setting_of_a_group_is_not_removed_for_one_recipe(conf: Path) -> None:
    (conf / "training" / "fp8.yaml").write_text("bf16: true\nfp8_interval: 4\n")
    recipe(conf, USES_FP8)
    fixes = fix([conf])
    assert fixes.changes == fixes.fixed == ()
    where = "training.fp8_interval is set in conf/training/fp8.yaml:2:1"
    assert reasons(fixes) == [("PP172", f"{where}, which others may use")]


def test_a_value_of_a_group_is_replaced_in_the_recipe(conf: Path) -> None:
    (conf / "training" / "fp8.yaml").write_text(
        "bf16: true\nfp16: true\ncheck_for_nan_in_loss_and_grad: true\nfp8_param_gather: false\n"
    )
    text = USES_FP8 + "training:\n  bf16: null\n  seq_length: 4096   # tokens\n"
    recipe(conf, text)
    after = text + "  check_for_nan_in_loss_and_grad: false\n"
    assert texts(fix([conf])) == {"conf/recipes/r.yaml": after}


def test_what_the_schema_refuses_is_mended_in_the_group_if_it_was_given(conf: Path) -> None:
    (conf / "hardware" / "h.yaml").write_text('gpu: h100\n"gpus-per-node": "8"  # a board\n')
    path = recipe(conf, USES_FP8.replace("/training: fp8", "/hardware: h"))
    alone = fix([path])
    assert alone.changes == ()
    assert set(reasons(alone)) == {("PP002", "conf/hardware/h.yaml was not given")}
    assert texts(fix([conf])) == {
        "conf/hardware/h.yaml": 'gpu: h100\n"gpus_per_node": 8  # a board\n'
    }


def test_a_group_file_with_a_header_names_its_keys_in_full(conf: Path) -> None:
    (conf / "hardware" / "h.yaml").write_text('# @package _global_\nhardware: {nodes: "2"}\n')
    fixes = fix([conf / "hardware"])
    assert texts(fixes) == {"conf/hardware/h.yaml": "# @package _global_\nhardware: {nodes: 2}\n"}


def test_a_suppression_in_a_group_is_not_unused_without_a_plan(conf: Path) -> None:
    (conf / "hardware" / "h.yaml").write_text("gpu: h100  # precision-plan: ignore[PP204] why\n")
    fixes = fix([conf])
    assert fixes == Fixes()


def test_a_recipe_that_others_include_is_left_alone(conf: Path) -> None:
    recipe(conf, f"{HEAD}training: {{bf16: true, fp8_margin: 1}}\n", "base")
    recipe(
        conf,
        f"# @package _global_\ndefaults:\n  - base\n  - _self_\n{HEAD}"
        "training: {fp8_format: hybrid, fp8_recipe: delayed}\n",
        "derived",
    )
    fixes = fix([conf])
    assert fixes.changes == ()
    assert ("PP170", "conf/recipes/derived.yaml includes this file") in reasons(fixes)


def test_the_profile_decides_what_is_a_finding(conf: Path) -> None:
    path = recipe(conf, f'{HEAD}training: {{bf16: "true", fp8_interval: 4}}\n')
    after = f"{HEAD}training: {{bf16: true, fp8_interval: 4}}\n"
    assert texts(fix([path], profile="explore")) == {"conf/recipes/r.yaml": after}
    with pytest.raises(ValueError, match="there is no profile"):
        fix([path], profile="strict")  # type: ignore[arg-type]


def test_a_silenced_finding_is_not_fixed(conf: Path) -> None:
    comment = "  # precision-plan: ignore[PP172] kept for the next release"
    path = recipe(conf, f"{HEAD}training:\n  bf16: true\n  fp8_interval: 4{comment}\n")
    assert fix([path]) == Fixes()


def test_a_byte_order_mark_stays(conf: Path) -> None:
    path = recipe(conf, "")
    path.write_bytes(f"\ufeff{HEAD}training: {{bf16: 'true'}}\r\n".encode())
    (change,) = fix([path]).changes
    assert change.before == f"\ufeff{HEAD}training: {{bf16: 'true'}}\r\n"
    assert change.after == f"\ufeff{HEAD}training: {{bf16: true}}\r\n"


def test_files_that_cannot_be_read_are_passed_over(conf: Path) -> None:
    recipe(conf, "training: [\n", "broken")
    (conf / "recipes" / "binary.yaml").write_bytes(b"\x00\x01")
    (conf / "recipes" / "nowhere.yaml").symlink_to("missing.yaml")
    path = recipe(conf, f"{HEAD}training: {{bf16: 'true'}}\n")
    assert texts(fix([conf, "missing"])) == {
        "conf/recipes/r.yaml": path.read_text().replace("'true'", "true")
    }


def test_findings_alike_keep_their_own_places(conf: Path) -> None:
    comment = "  # precision-plan: ignore[PP101] no fp16"
    text = f"{HEAD}training:{comment}\n  bf16: true{comment}\n  fp8_interval: 4\n"
    path = recipe(conf, text)
    fixes = fix([path])
    lines = sorted((each.diagnostic.id, each.diagnostic.origin.line) for each in fixes.fixed)
    assert lines == [("PP021", 2), ("PP021", 3), ("PP172", 4)]
    assert texts(fixes) == {"conf/recipes/r.yaml": f"{HEAD}training:\n  bf16: true\n"}


def test_thousands_of_fixes_are_made(conf: Path) -> None:
    lines = "".join(f"  # precision-plan: ignore[PP101] {number}\n" for number in range(1100))
    path = recipe(conf, f"{HEAD}training:\n  bf16: true\n{lines}")
    fixes = fix([path])
    assert len(fixes.fixed) == 1100
    assert texts(fixes) == {"conf/recipes/r.yaml": f"{HEAD}training:\n  bf16: true\n"}
