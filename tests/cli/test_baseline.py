"""``lint --baseline``: what a person sees and what CI gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_plan.__main__ import main

HEAD = "recipe: {title: t, source: [s], maturity: stable}\n"
BOTH = HEAD + "training: {bf16: true, fp16: true}\n"
GOOD = HEAD + "training: {bf16: true}\n"


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text(BOTH)
    (tmp_path / "conf" / "b.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def lint(*argv: str) -> int:
    return main(["lint", *argv, "--baseline", "base.json"])


def record(*argv: str) -> list[dict[str, object]]:
    assert lint(*(argv or ("conf",)), "--update-baseline") == 0
    findings: list[dict[str, object]] = json.loads(Path("base.json").read_text())["findings"]
    return findings


def test_only_what_is_new_fails(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = record()
    assert (found["id"], found["file"], found["count"]) == ("PP101", "conf/a.yaml", 1)
    assert "1 finding recorded in the baseline base.json\n0 errors, " in capsys.readouterr().out
    assert lint("conf") == 0
    assert "1 finding hidden by the baseline base.json\n0 errors, " in capsys.readouterr().out
    Path("conf/a.yaml").write_text("# moved down\n\n" + BOTH)
    assert lint("conf") == 0
    Path("conf/b.yaml").write_text(BOTH)
    assert lint("conf") == 1
    out = capsys.readouterr().out
    assert "error[PP101] fp16-with-bf16           conf/b.yaml:2:24" in out
    assert "1 error, 0 warnings" in out and "conf/a.yaml" not in out.split("error[")[1]


def test_what_is_fixed_is_said_and_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    record()
    Path("conf/a.yaml").write_text(GOOD)
    assert lint("conf") == 0
    assert (
        "1 entry of the baseline base.json is no longer found: "
        "run again with --update-baseline to drop what is gone\n"
    ) in capsys.readouterr().out
    assert record() == []


def test_a_file_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    record()
    Path("conf/a.yaml").unlink()
    assert lint("conf/b.yaml") == 0
    assert "1 entry of the baseline base.json is no longer found" in capsys.readouterr().out


def test_other_files_and_profiles_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf/b.yaml").write_text("training: {bf16: true}\n")  # no title: a warning
    assert len(record()) == 2
    capsys.readouterr()
    assert lint("conf/b.yaml") == 0
    assert "no longer found" not in capsys.readouterr().out
    assert lint("conf", "--profile", "explore") == 0
    shown = capsys.readouterr().out
    assert "1 finding hidden" in shown and "no longer found" not in shown
    assert {found["id"] for found in record("conf/b.yaml")} == {"PP101", "PP013"}


def test_the_same_file_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    record()
    monkeypatch.chdir("conf")
    assert main(["lint", "a.yaml", "--baseline", "../base.json"]) == 0
    assert main(["lint", "a.yaml"]) == 1


def test_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    record()
    text = Path("base.json").read_text()
    record()
    assert Path("base.json").read_text() == text
    Path("base.json").write_text(text.replace('"count": 1', '"count": 2'))
    assert lint("conf") == 0
    assert "no longer found" in capsys.readouterr().out


def test_fail_on_holds_for_what_is_new() -> None:
    Path("conf/b.yaml").write_text("training: {bf16: true}\n")
    record("conf/a.yaml")
    assert lint("conf") == 0
    assert lint("conf", "--fail-on", "warning") == 1
    record()
    assert lint("conf", "--fail-on", "advice") == 0


def test_broken_input_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    record()
    before = Path("base.json").read_text()
    Path("conf/b.yaml").write_text(HEAD + "training: {bf16: [\n")
    assert lint("conf") == 2
    capsys.readouterr()
    assert lint("conf", "--update-baseline") == 2
    shown = capsys.readouterr()
    assert "error[PP001]" in shown.out
    assert shown.err == (
        "precision-plan: the baseline base.json is not written: "
        "some input cannot be read, so that its findings are not known\n"
    )
    assert Path("base.json").read_text() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the baseline base.json: No such file or directory"),
        (b"{", "base.json is no baseline: it is not JSON: "),
        (b"\xff", "base.json is no baseline: it is not text in UTF-8"),
        (b"{}", "base.json is no baseline: it is no object of schema_version, "),
    ],
)
def test_an_unusable_file(
    text: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("base.json").write_bytes(text)
    assert lint("conf") == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith(f"precision-plan: {message}")
    hint = "--update-baseline records" if text is None else "name another file, or delete it"
    assert f"\n  hint: {hint}" in shown.err


def test_a_file_that_is_no_baseline_is_not_overwritten() -> None:
    Path("base.json").write_text("notes")
    assert lint("conf", "--update-baseline") == 2
    assert Path("base.json").read_text() == "notes"


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "conf", "--baseline", "no/base.json", "--update-baseline"]) == 2
    assert "cannot write no/base.json: No such file or directory" in capsys.readouterr().err


def test_an_update_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "conf", "--update-baseline"]) == 2
    assert "--update-baseline needs --baseline FILE" in capsys.readouterr().err


def test_a_batch_has_no_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--jsonl", "x.jsonl", "--baseline", "base.json"]) == 2
    assert "--jsonl and --baseline exclude each other" in capsys.readouterr().err
