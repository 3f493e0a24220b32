"""A sourced file that was run before does the same again; what it reads decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_plan.importers.jobs import ScriptReading
from precision_plan.importers.shell import files, repeated
from precision_plan.importers.shell.reader import read_script
from precision_plan.importers.texts import Source

FIXTURES = Path(__file__).parents[2] / "fixtures" / "scripts"
MODEL = """\
LAYERS=${LAYERS:-48}
freq=()
for ((i=0; i<LAYERS; i++)); do
  if (( i < DENSE )); then freq+=(0); else freq+=(1); fi
done
printf -v FREQ "[%s]" "$(IFS=', '; echo "${freq[*]}")"
export SEEN=$HOST
MODEL_ARGS=(--num-layers $LAYERS --moe-layer-freq $FREQ)
"""
RUN = 'source "$(dirname "$0")/model.sh"\npython train.py ${MODEL_ARGS[@]} ${MORE[@]}\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.sh").write_text(MODEL)
    files._source.cache_clear()


def read(text: str) -> ScriptReading:
    return read_script(Source("run.sh", text.encode()))


def told(reading: ScriptReading) -> Any:
    """Everything that a reading says, without the identity of its files."""
    commands = [
        (
            [(word.shown, word.known, str(word.origin)) for word in each.words],
            {name: (text.shown, str(text.origin)) for name, text in each.env.items()},
            each.branches,
            each.origin,
        )
        for each in reading.commands
    ]
    names = [source.file for source in reading.sources]
    return (commands, reading.leftovers, reading.diagnostics, names, dict(reading.tokens))


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are run, one entry each time."""
    runs: list[str] = []
    first = repeated._first

    def counted(shell: Any, source: Source, *rest: Any) -> Any:
        runs.append(source.file)
        return first(shell, source, *rest)

    monkeypatch.setattr(repeated, "_first", counted)
    return runs


def test_the_same_is_said_without_running_the_file_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count_runs(monkeypatch)
    text = "DENSE=1\nLAYERS=4\nHOST=a\n" + RUN
    once = told(read(text))
    assert "[0, 1, 1, 1]" in str(once) or "[0,1,1,1]" in str(once)
    assert told(read(text)) == once
    later = told(read("# one line more\n" + text))
    assert len(runs) == 3  # positions of DENSE, LAYERS and HOST are other ones each time
    assert [word[:2] for word in later[0][0][0]] == [word[:2] for word in once[0][0][0]]


def test_a_file_that_reads_nothing_of_the_script_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("model.sh").write_text("A=1\nMODEL_ARGS=(--num-layers 4 --bf16)\n")
    runs = count_runs(monkeypatch)
    branches = 'if [ "$X" = 1 ]; then MORE=(--fp16); else MORE=(); fi\n'
    first = told(read(branches + RUN))
    assert len(first[0]) == 2
    assert told(read(branches + RUN)) == first
    assert runs == ["model.sh"]


@pytest.mark.parametrize(
    "change",
    [
        ("LAYERS=4", "LAYERS=6"),
        ("HOST=a", "export HOST=a"),
        ("HOST=a", "HOST=b"),
        ("DENSE=1", 'DENSE="$1"'),
        ("DENSE=1", "DENSE=1\nprintf() { echo x; }"),
        ("DENSE=1", "DENSE=1\nset -e"),
    ],
)
def test_what_the_file_reads_decides(change: tuple[str, str]) -> None:
    text = "DENSE=1\nLAYERS=4\nHOST=a\n" + RUN
    other = text.replace(*change)
    alone = told(read(other))
    files._source.cache_clear()
    read(text)
    assert told(read(other)) == alone


@pytest.mark.parametrize(
    "line",
    [
        "python convert.py",
        "echo hello",
        "A=$(nproc)",
        "A=${1}",
        "eval A=1",
        'if [ "$Y" = 1 ]; then A=1; else A=2; fi',
        "cat > x.json <<EOF\n{}\nEOF",
        "exit 1",
        "A=${UNSET}",
    ],
)
def test_a_file_that_does_more_says_it_each_time(line: str) -> None:
    Path("model.sh").write_text(MODEL + line + "\n")
    text = "DENSE=1\nif [ $Z ]; then MORE=(--x 1); fi\n" + RUN
    alone = told(read(text))
    assert told(read(text)) == alone
    assert told(read(text)) == alone


def test_fixtures_read_alike_twice() -> None:
    scripts = sorted(FIXTURES.glob("*/*.sh"))
    assert len(scripts) > 30
    sources = [(path, path.read_bytes()) for path in scripts]
    before = {}
    for path, data in sources:
        files._source.cache_clear()
        before[path] = told(read_script(Source(str(path), data)))
    for path, data in sources:
        assert told(read_script(Source(str(path), data))) == before[path]
