"""Diffs are what ``patch`` takes, whatever the line endings and the encoding."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan.text_edits import TextEdit, edited, edited_bytes
from precision_plan.render import diff
from tests._hypothesis import examples

SCRIPT = b"""#!/bin/bash
# \xc3\xa9t\xc3\xa9
export PYTHONBUFFERED=16
python train.py \\
   --fp8-format hybrid
"""


def test_edits_of_a_script_become_a_diff() -> None:
    start = SCRIPT.index(b"PYTHONBUFFERED")
    edits = [TextEdit(start, start + len("PYTHONBUFFERED"), "PYTHONUNBUFFERED")]
    assert diff.of_edits("scripts/run.sh", SCRIPT, edits) == (
        "--- a/scripts/run.sh\n"
        "+++ b/scripts/run.sh\n"
        "@@ -1,5 +1,5 @@\n"
        " #!/bin/bash\n"
        " # été\n"
        "-export PYTHONBUFFERED=16\n"
        "+export PYTHONUNBUFFERED=16\n"
        " python train.py \\\n"
        "    --fp8-format hybrid\n"
    )


def test_a_file_without_changes_has_no_diff() -> None:
    assert diff.of_edits("run.sh", SCRIPT, []) == ""


def test_a_missing_newline_at_the_end_is_told() -> None:
    assert diff.unified("/tmp/a", "a: 1", "a: 2").splitlines() == [
        "--- /tmp/a",
        "+++ /tmp/a",
        "@@ -1 +1 @@",
        "-a: 1",
        "\\ No newline at end of file",
        "+a: 2",
        "\\ No newline at end of file",
    ]


@pytest.mark.parametrize(
    "edits",
    [
        (TextEdit(0, 3, "x"), TextEdit(2, 4, "y")),
        (TextEdit(3, 2),),
        (TextEdit(0, 99),),
    ],
)
def test_edits_that_overlap_or_lie_outside_are_refused(edits: tuple[TextEdit, ...]) -> None:
    with pytest.raises(ValueError, match="overlaps another edit, or lies outside"):
        edited("abcdef", edits)


def test_edits_keep_what_they_do_not_name() -> None:
    edits = (TextEdit(4, 5, "E"), TextEdit(1, 2), TextEdit(1, 2), TextEdit(6, 6, "!"))
    assert edited("äbcdëf", edits) == "äcdEf!"
    assert edited_bytes("äb".encode() + b"\xff", [TextEdit(2, 3, "ö")]) == "äö".encode() + b"\xff"


LINES = st.lists(st.sampled_from(["a\n", "b: 1\r\n", "\n", "é \u2028 x\n", "--- c\n"]), max_size=8)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@examples(40)
@given(LINES, LINES, st.sampled_from(["", "z", "end \r"]), st.sampled_from(["", "z"]))
def test_git_applies_a_diff(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    after: list[str],
    old_end: str,
    new_end: str,
) -> None:
    old, new = "".join(before) + old_end, "".join(after) + new_end
    if not old or not new or old == new:
        return
    folder: Path = tmp_path_factory.mktemp("patched")
    (folder / "f.yaml").write_bytes(old.encode())
    text = diff.unified("f.yaml", old, new)
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=text.encode(), cwd=folder, check=True)
    assert (folder / "f.yaml").read_bytes() == new.encode()
