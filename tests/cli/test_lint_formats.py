"""``lint`` in every format: one verdict, whatever it is written in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from precision_plan.__main__ import main
from precision_plan.render import LINT_FORMATS
from tests.render.runner import read

ADVISED = "recipe: {title: t, source: [s], maturity: experimental}\ntraining: {bf16: true}\n"
WARNED = "training: {bf16: true}\n"
WRONG = "recipe: {title: t, source: [s], maturity: stable}\ntraining: {bf16: true, fp16: true}\n"
BROKEN = "training: [\n"


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # as in a work tree
    (tmp_path / "train").mkdir()
    monkeypatch.chdir(tmp_path / "train")
    return tmp_path


def severities(format: str, text: str) -> list[str]:
    """The severities that a format tells."""
    if format == "json":
        return [each["severity"] for each in json.loads(text)["diagnostics"]]
    if format == "sarif":
        names = {"note": "advice"}
        results = json.loads(text)["runs"][0]["results"]
        return [names.get(each["level"], each["level"]) for each in results]
    if format == "github":
        found = filter(None, map(read, text.splitlines()))
        return [{"notice": "advice"}.get(each.name, each.name) for each in found]
    if format == "junit":
        blocks = "\n\n".join(ElementTree.fromstring(text).itertext()).split("\n\n")
        return [block.partition("[")[0].strip() for block in blocks if "[PP" in block]
    if format == "markdown":
        starts = [line for line in text.splitlines() if line.startswith("<summary>")]
        return [line.removeprefix("<summary><b>").partition(" ")[0] for line in starts]
    return [line.partition("[")[0] for line in text.splitlines() if "[PP" in line]


@pytest.mark.parametrize("format", LINT_FORMATS)
@pytest.mark.parametrize(
    ("recipe", "argv", "code", "found"),
    [
        (ADVISED, [], 0, ["advice"]),
        (ADVISED, ["--fail-on", "advice"], 1, ["advice"]),
        (ADVISED, ["--profile", "explore", "--fail-on", "advice"], 0, []),
        (ADVISED, ["--profile", "production"], 0, ["warning"]),
        (ADVISED, ["--profile", "production", "--fail-on", "warning"], 1, ["warning"]),
        (WARNED, [], 0, ["warning"]),
        (WARNED, ["--fail-on", "warning"], 1, ["warning"]),
        (WRONG, [], 1, ["error"]),
        (WRONG, ["--profile", "explore"], 1, ["error"]),
        (BROKEN, ["--profile", "explore"], 2, ["error"]),
    ],
)
def test_verdicts(
    format: str, recipe: str, argv: list[str], code: int, found: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Path("a.yaml").write_text(recipe)
    assert main(["lint", "a.yaml", "--format", format, *argv]) == code
    assert severities(format, capsys.readouterr().out) == found


def test_junit_fails_what_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text(WARNED)
    for argv, failures in (([], "0"), (["--fail-on", "warning"], "1")):
        main(["lint", "a.yaml", "--format", "junit", *argv])
        assert ElementTree.fromstring(capsys.readouterr().out).get("failures") == failures


@pytest.mark.parametrize("format", LINT_FORMATS)
def test_a_file_is_written_in_one_step(
    format: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.yaml").write_text(WRONG)
    assert main(["lint", "a.yaml", "--format", format, "-o", "../out"]) == 1
    assert capsys.readouterr().out == ""
    assert severities(format, (repository / "out").read_text()) == ["error"]
    assert sorted(path.name for path in repository.iterdir()) == [".git", "out", "train"]


def test_paths_start_at_the_root_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a b.yaml").write_text(WRONG)
    shown: dict[str, str] = {}
    for format in ("github", "sarif", "junit", "markdown"):
        assert main(["lint", "a b.yaml", "--format", format]) == 1
        shown[format] = capsys.readouterr().out
    assert "::error file=train/a b.yaml,line=2," in shown["github"]
    run: dict[str, Any] = json.loads(shown["sarif"])["runs"][0]
    artifact = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "train/a%20b.yaml", "uriBaseId": "%SRCROOT%"}
    assert run["tool"]["driver"]["rules"][0]["help"]["markdown"].startswith("# PP101 ")
    assert '<testcase classname="precision-plan" name="train/a b.yaml">' in shown["junit"]
    assert "### <code>train/a b.yaml</code>" in shown["markdown"]


def test_without_a_repository_paths_start_here(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / ".git").unlink()
    Path("a.yaml").write_text(WRONG)
    main(["lint", "a.yaml", "--format", "github"])
    assert "::error file=a.yaml,line=2," in capsys.readouterr().out


def test_an_unknown_format_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "a.yaml", "--format", "xml"]) == 2
    shown = capsys.readouterr().err
    assert "invalid choice: 'xml'" in shown and all(format in shown for format in LINT_FORMATS)
