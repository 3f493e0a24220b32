"""What a baseline holds, hides and forgets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan.baseline import Baseline, Entry, Key, dump, gone, hidden, parse, updated

A = Key("a.yaml", "PP101", "training.fp16", "both")
B = Key("b.yaml", "PP204", "", "needs more")
KNOWN = Baseline(("conf",), {A: Entry("error", 2), B: Entry("advice", 1)})

KEYS = st.builds(Key, st.text(), st.sampled_from(["PP101", "PP204"]), st.text(), st.text())
BASELINES = st.builds(
    Baseline,
    st.lists(st.text(), unique=True).map(lambda paths: tuple(sorted(paths))),
    st.dictionaries(KEYS, st.builds(Entry, st.sampled_from(["error", "advice"]), st.integers(1))),
)


def everything(key: Key, entry: Entry) -> bool:
    return True


def nothing(key: Key, entry: Entry) -> bool:
    return False


def test_the_text_is_sorted_and_one_finding_a_line() -> None:
    text = dump(Baseline(("conf", "a"), {B: Entry("advice", 1), A: Entry("error", 2)}))
    assert text == (
        "{\n"
        '  "schema_version": "1",\n'
        '  "paths": ["a", "conf"],\n'
        '  "findings": [\n'
        '    {"id": "PP101", "severity": "error", "file": "a.yaml", "field": "training.fp16", '
        '"message": "both", "count": 2},\n'
        '    {"id": "PP204", "severity": "advice", "file": "b.yaml", "field": "", '
        '"message": "needs more", "count": 1}\n'
        "  ]\n"
        "}\n"
    )
    assert json.loads(dump(Baseline((), {}))) == {
        "schema_version": "1", "paths": [], "findings": [],
    }  # fmt: skip


@given(BASELINES)
def test_what_is_written_is_read(baseline: Baseline) -> None:
    assert parse(dump(baseline)) == baseline


GOOD = json.loads(dump(Baseline((), {A: Entry("error", 1)})))


def changed(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def finding(**changes: object) -> str:
    return changed(findings=[{**GOOD["findings"][0], **changes}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON: Expecting value"),
        ("[]", "it is no object of schema_version, paths and findings"),
        ("{}", "it is no object of schema_version"),
        ("[" * 100_000, "it is nested too deeply"),
        (changed(schema_version="2"), "schema_version is '2', not '1'"),
        (changed(paths="conf"), "paths is no list of texts"),
        (changed(paths=[1]), "paths is no list of texts"),
        (changed(findings={}), "findings is no list"),
        (changed(findings=[1]), "finding 1 is no object of id, severity, file, field, message"),
        (changed(findings=GOOD["findings"] * 2), "finding 2 is there twice"),
        (finding(extra=1), "finding 1 is no object of"),
        (finding(message=None), "message of finding 1 is no text"),
        (finding(count=0), "count of finding 1 is 0, not 1 or more"),
        (finding(count=True), "count of finding 1 is True"),
        (finding(count="1"), "count of finding 1 is '1'"),
    ],
)
def test_what_is_no_baseline_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


def test_a_count_hides_that_many() -> None:
    assert hidden([A, B, A, A], KNOWN) == (True, True, True, False)
    assert hidden([A._replace(message="other")], KNOWN) == (False,)


def test_what_is_found_less_often_is_gone() -> None:
    assert gone([A, A, B], KNOWN, everything) == 0
    assert gone([A, B], KNOWN, everything) == 1
    assert gone([], KNOWN, everything) == 2
    assert gone([], KNOWN, nothing) == 0


def test_an_update_keeps_what_it_says_nothing_about() -> None:
    def judged(key: Key, entry: Entry) -> bool:
        return key.file == "a.yaml"

    new = updated([(A, "warning")], ["a.yaml"], KNOWN, judged)
    assert new.entries == {A: Entry("warning", 1), B: Entry("advice", 1)}
    assert new.paths == ("a.yaml",)
    assert updated([(A, "error"), (A, "error")], [], None, everything).entries == {
        A: Entry("error", 2)
    }
    assert updated([], [], KNOWN, everything).entries == {}
