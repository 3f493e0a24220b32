"""What the reader finds in a script besides words: branches, positions, findings, leftovers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.importers.jobs import Command, ScriptReading
from precision_plan.importers.shell.open_marks import still_open
from precision_plan.importers.shell.reader import read_script
from precision_plan.importers.shell.tree import parsed
from precision_plan.importers.texts import Source


def read(text: str, file: str = "run.sh") -> ScriptReading:
    return read_script(Source(file, text.encode()))


def words(command: Command) -> str:
    return " ".join(word.shown for word in command.words)


def left(reading: ScriptReading) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in reading.leftovers]


def test_a_condition_on_the_environment_goes_both_ways() -> None:
    reading = read(
        'if [ "$GPU" = b200 ]; then R=mxfp8; else R=blockwise; fi\ntrain --fp8-recipe $R\n'
    )
    assert [
        (words(each), [str(branch) for branch in each.branches]) for each in reading.commands
    ] == [
        ("train --fp8-recipe mxfp8", ['[ "$GPU" = b200 ]']),
        ("train --fp8-recipe blockwise", ['not: [ "$GPU" = b200 ]']),
    ]
    assert reading.commands[0].branches[0].origin.line == 1


def test_a_default_goes_both_ways_and_a_branch_fixes_it() -> None:
    reading = read(
        "GPU=${GPU:-h100}\n"
        'case "$GPU" in h100) R=blockwise ;; b200|gb200) R=mxfp8 ;; esac\n'
        "train $GPU ${R:-none}\n"
    )
    assert [words(each) for each in reading.commands] == [
        "train h100 blockwise",
        "train b200 mxfp8",
        "train gb200 mxfp8",
        "train ${GPU} none",
    ]


def test_a_branch_that_ends_the_script_decides_nothing() -> None:
    reading = read('if [ -z "$KEY" ]; then echo missing; exit 1; fi\ntrain\n')
    assert [(words(each), each.branches) for each in reading.commands] == [("train", ())]


def test_branches_that_set_the_same_are_one() -> None:
    reading = read("if nvidia-smi; then X=1; else X=1; fi\ntrain $X\n")
    assert [(words(each), each.branches) for each in reading.commands][-1] == ("train 1", ())


def test_every_branch_is_followed_though_not_every_combination() -> None:
    lines = [f'if [ "$E{n}" = x ]; then A{n}=yes; else A{n}=no; fi' for n in range(9)]
    reading = read("\n".join(lines) + "\ntrain " + " ".join(f"$A{n}" for n in range(9)) + "\n")
    assert len(reading.commands) < 2**9
    for n in range(9):
        assert {each.words[n + 1].shown for each in reading.commands} == {"yes", "no"}
    assert [kind for kind, _ in left(reading) if kind == "limit"] == ["limit"]


def test_an_unknown_word_says_what_it_is() -> None:
    reading = read('train --a "$(date)" --b $EXTRA --c ${HOME}/x "$@"\n')
    command = reading.commands[0]
    assert [(word.shown, word.known, word.splits) for word in command.words[1:]] == [
        ("--a", True, False),
        ("$(date)", False, False),
        ("--b", True, False),
        ("$EXTRA", False, True),
        ("--c", True, False),
        ("${HOME}/x", False, True),
    ]
    assert left(reading) == [
        ("substitution", "$(date)"),
        ("unset", "EXTRA"),
        ("unset", "HOME"),
        ("arguments", "$@"),
    ]


@pytest.mark.parametrize(
    ("text", "word", "line", "column"),
    [
        ("A=(\n  --x 1\n  --y\n)\ntrain ${A[@]}\n", "--y", 3, 3),
        ("# ä\nX='é --q'\ntrain $X\n", "--q", 2, 6),
        ('J="{\n  \\"k\\": 1\n}"\ntrain "$J"\n', None, 1, 4),
        ("f() { train --z $1; }\nf 7\n", "7", 2, 3),
    ],
)
def test_a_word_points_to_where_it_was_written(
    text: str, word: str | None, line: int, column: int
) -> None:
    command = read(text).commands[0]
    found = next(each for each in command.words[1:] if word is None or each.shown == word)
    assert (found.origin.file, found.origin.line, found.origin.column) == ("run.sh", line, column)


def test_a_character_of_a_quoted_text_has_its_own_position() -> None:
    command = read('J="{\n  \\"k\\": \\"v\\"\n}"\ntrain "$J"\n').commands[0]
    value = command.words[1]
    assert value.shown == '{\n  "k": "v"\n}'
    at = value.origin_at(value.shown.index("k"))
    assert (at.line, at.column) == (2, 5)


def test_exports_and_assignments_before_a_command_are_its_environment() -> None:
    reading = read("export A=1\nB=2\nC=3 D=$A train\nunset A\ntrain\n")
    assert [{name: text.shown for name, text in each.env.items()} for each in reading.commands] == [
        {"A": "1", "C": "3", "D": "1"},
        {},
    ]


def test_what_ray_start_saw_is_kept() -> None:
    reading = read("export A=1\nray start --head\nexport B=2\nray job submit -- x\nray stop\nx\n")
    seen = [None if each.ray_env is None else sorted(each.ray_env) for each in reading.commands]
    assert seen == [None, ["A"], ["A"], None]


def test_a_file_that_is_sourced(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sh").write_text("MODEL_ARGS=(--num-layers 4)\n")
    script = tmp_path / "run.sh"
    script.write_text(
        'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"\n'
        'source "${HERE}/models/m.sh"\ntrain ${MODEL_ARGS[@]}\n'
    )
    reading = read_script(Source(str(script), script.read_bytes()))
    assert words(reading.commands[0]) == "train --num-layers 4"
    assert reading.commands[0].words[1].origin.file.endswith("m.sh")
    assert reading.diagnostics == () == reading.leftovers


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        'set -e\nHERE=$(dirname "$0")\nsource "$HERE/../no/m.sh"\nsource /else/m.sh\n'
    )
    reading = read_script(Source(str(script), script.read_bytes()))
    assert [(each.id, each.origin.line) for each in reading.diagnostics] == [("PP940", 3)]
    assert "stops here" in reading.diagnostics[0].because[0].text
    assert [each.kind for each in reading.leftovers] == ["source", "source"]


@pytest.mark.parametrize(
    ("text", "line", "because"),
    [
        ("train --a 1\n  --b 2\n", 2, "does not end with a backslash"),
        ("train --a 1 \\ \n  --b 2\n", 2, "followed by a space"),
        ("train --a 1 \\\n  # --c\n  --b 2\n", 3, "a comment between the lines"),
        ("A=(--b)\ntrain --a 1\n  ${A[@]}\n", 3, "does not end with a backslash"),
    ],
)
def test_a_lost_backslash(text: str, line: int, because: str) -> None:
    found = read(text).diagnostics
    assert [(each.id, each.origin.line) for each in found] == [("PP941", line)]
    assert because in found[0].because[0].text


def test_assignments_on_one_line_end_with_it() -> None:
    """The grammar takes the next line for the command of two assignments, though not of one."""
    text = "if x; then\n  A=1 B=2 # two\nelse\n  A=3 B=4\nfi\nC=5 D=6\ntrain $A $B $C ${D}\n"
    reading = read(text)
    assert [words(each) for each in reading.commands] == ["x", "train 1 2 5 6", "train 3 4 5 6"]
    assert reading.commands[1].words[0].origin.line == 7
    before = read("A=1 B=2 \\\n  train $A\n").commands[0]
    assert words(before) == "train $A" and list(before.env) == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "started", "env", "line"),
    [
        ("bash <<EOF\ntrain $A\nEOF\n", "train 1", ["A"], 3),
        ("cat <<EOF | bash\ntrain $A\nEOF\n", "train 1", ["A"], 3),
        ("sbatch -N 2 <<'EOF'\n#SBATCH -n 4\ntrain $A\nEOF\n", "train 1", ["A"], 4),
        ("ssh -o B=no host <<EOF\ntrain $A\nEOF\n", "train 1", [], 3),
        ("ssh host bash -s <<'EOF'\ntrain $A\nEOF\n", "train $A", [], 3),
        ("ssh host 'train $A'\n", "train $A", [], 2),
        ('sbatch -N 2 --wrap="train $A"\n', "train 1", ["A"], 2),
        ("sbatch --wrap 'train $A'\n", "train 1", ["A"], 2),
        ("tmux send-keys -t x 'train 1' C-m\n", "train 1", [], 2),
        ("docker run -e B=2 image bash -c 'train $A$B'\n", "train $A2", ["B"], 2),
    ],
)
def test_a_script_for_another_shell(text: str, started: str, env: list[str], line: int) -> None:
    """It is followed with the environment that it gets there."""
    commands = read(f"export A=1\n{text}").commands
    found = next(each for each in commands if each.words[0].shown == "train")
    assert words(found) == started
    assert sorted(found.env) == env
    assert found.words[0].origin.line == line


@pytest.mark.parametrize(
    "command", ["python -", "cat | tee x", "sbatch job.sh", "bash job.sh", "ssh host mail"]
)
def test_an_input_that_is_no_script(command: str) -> None:
    name, pipe, rest = command.partition(" |")
    text = f"{name} <<EOF{pipe}{rest}\ntrain\nEOF\n"
    assert all(each.words[0].shown != "train" for each in read(text).commands)


def test_the_output_of_a_filter_is_not_known() -> None:
    text = "A=$(cat <<'EOF' | grep -v x\n--a\n--x\nEOF\n)\ntrain $A\n"
    command = read(text).commands[-1]
    assert [word.known for word in command.words] == [True, False]


@pytest.mark.parametrize("text", ["R = mxfp8\n", "R =mxfp8\n", "R = (--a b)\n"])
def test_spaces_around_an_equals_sign(text: str) -> None:
    found = read(f"A=1\n{text}train $R\n").diagnostics
    assert [(each.id, each.origin.line) for each in found] == [("PP944", 2)]


@pytest.mark.parametrize(
    "text", ["[ x = y ]\n", "test x = y\n", "let x = 5\n", "x == y\n", "X= y\n"]
)
def test_an_equals_sign_that_assigns_nothing(text: str) -> None:
    assert not read(text).diagnostics


def test_an_array_that_nothing_sets() -> None:
    found = read("PERF_ARGS=(--a 1)\ntrain ${PREF_ARGS[@]}\n").diagnostics
    assert [(each.id, each.origin.line) for each in found] == [("PP943", 2)]
    assert "PERF_ARGS" in found[0].fix[0].text
    assert found[0].because[0].origin.line == 1


@pytest.mark.parametrize(
    "text",
    [
        "PERF_ARGS=(--a 1)\ntrain ${PREF_ARGS[@]} ${PERF_ARGS[@]}\n",  # it is used
        "PERF_ARGS=(--a 1)\ntrain ${EVAL_ARGS[@]}\n",  # nothing is close
        "PERF_ARGS=(--a 1)\ntrain $PREF_ARGS\n",  # the environment may have it
        "source $X\nPERF_ARGS=(--a 1)\ntrain ${PREF_ARGS[@]}\n",  # that file may set it
    ],
)
def test_an_array_that_may_be_set(text: str) -> None:
    assert not read(text).diagnostics


def test_eval_of_words() -> None:
    reading = read("CMD='train --a 1'\neval $CMD --b\neval \"$CMD\"\n")
    assert [words(each) for each in reading.commands] == ["train --a 1 --b", "train --a 1"]


def test_the_folder_is_followed() -> None:
    reading = read('train $PWD\ncd "$(dirname "$0")"\ntrain $PWD/x\n', "/w/run.sh")
    assert [words(each) for each in reading.commands] == ["train $PWD", "train /w/x"]


def test_a_note_to_be_filled_in_is_no_lost_backslash() -> None:
    assert not read("DATA=<THE_FOLDER>\n\ntrain \\\n  --a 1\n").diagnostics


def test_a_note_to_be_filled_in_is_one_word_that_is_not_known() -> None:
    reading = read('W="<your dir>"\nE="<eos>"\ntrain --load $W/in --stop $E\n')
    command = reading.commands[0]
    assert words(command) == "train --load ${W}/in --stop <eos>"
    assert [word.known for word in command.words] == [True, True, False, True, True]
    assert left(reading) == [("unset", 'W="<your dir>"')]


@pytest.mark.parametrize(
    "text",
    ['A="b\nc --d\n', "A='b\nc\n", "A=(\n --b 1\n", "if true; then\n train\n", "X=$(train\n"],
)
def test_what_is_never_closed(text: str) -> None:
    assert [each.id for each in read(text).diagnostics] == ["PP942"]


def test_the_grammar_s_own_limits_are_no_finding() -> None:
    reading = read('V="${A:$N+1}"\nif [[ 1 -ne 0 ]] && ! [ -w / ]; then x; fi\ntrain\n')
    assert reading.diagnostics == ()
    assert words(reading.commands[-1]) == "train"


def test_what_no_way_reaches_is_left_over() -> None:
    reading = read("helper() { train --never; }\nexit 0\ntrain --later\n")
    assert reading.commands == ()
    assert left(reading) == [("unreached", "train --never"), ("unreached", "train --later")]


def test_a_script_that_sources_itself_or_never_ends(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text('source "${BASH_SOURCE[0]}"\nf() { f; }\nf\nwhile true; do train; done\n')
    reading = read_script(Source(str(script), script.read_bytes()))
    assert "limit" in {kind for kind, _ in left(reading)}


_LINES = st.sampled_from(
    [
        "A=1", "A+=(x y)", "export B=$A", 'run "$A" ${B:-c} $@', "if [ $A = 1 ]; then", "else",
        "fi", "for i in 1 2 $A; do", "done", "f() {", "}", "f x", "case $A in", "a) run;;", "esac",
        "# c", "X=$(run)", "cat <<EOF", "EOF", "run \\", "--flag 'q", '"open', "$((A+1))", "|| run",
        "&& {", "${A[@]", "exit", "source x.sh", ")", "(", "`run`", "é=ü", "\\", "while read x; do",
    ]
)  # fmt: skip


@given(st.lists(_LINES, max_size=14))
def test_any_text_is_read_and_every_statement_accounted_for(lines: list[str]) -> None:
    source = Source("any.sh", "\n".join(lines).encode())
    reading = read_script(source)
    spans = [(start, end) for file, start, end in reading.tokens if file == "any.sh"]
    for leaf in _leaves(parsed(source)):
        inside = any(start <= leaf.start_byte and leaf.end_byte <= end for start, end in spans)
        assert inside or _is_mark(leaf), (leaf.type, leaf.text)


def _leaves(node):  # type: ignore[no-untyped-def]
    if not node.child_count:
        yield node
    for child in node.children:
        yield from _leaves(child)


_HEADS = {
    "variable_name", "heredoc_body", "heredoc_start", "heredoc_end", "heredoc_content",
    "file_descriptor", "comment", "extglob_pattern", "string_content",
}  # fmt: skip


def _is_mark(leaf) -> bool:  # type: ignore[no-untyped-def]
    """Keywords and punctuation of compound statements, and the words in their heads."""
    if not leaf.is_named or leaf.start_byte == leaf.end_byte or leaf.type in _HEADS:
        return True
    parent = leaf.parent
    while parent is not None:
        if parent.type in {"for_statement", "case_statement", "case_item", "function_definition"}:
            return True
        if parent.type in {"file_redirect", "herestring_redirect", "heredoc_redirect"}:
            return True
        if parent.type in {"binary_expression", "compound_statement", "c_style_for_statement"}:
            return True
        parent = parent.parent
    return False


@pytest.mark.parametrize(
    ("text", "mark", "line"),
    [
        ('echo "a\necho b\n', '"', 1),
        ("x=1 # don't\necho 'a\n", "'", 2),
        ("f() {\n  # it's a comment\n  echo ${A#x}\n", "{", 1),
        ('echo "$(echo "a)"\n', '"', 1),
        ("case $x in\n a) echo;;\n", "case", 1),
        ("if a; then\n  for i in 1; do echo done; done\n", "if", 1),
        ("cat <<'E'\n\"'(\nE\necho $'it\\'s' \"\n", '"', 4),
        ("echo `date\n", "`", 1),
    ],
)
def test_what_stays_open(text: str, mark: str, line: int) -> None:
    found = still_open(text)
    assert found is not None
    assert (found.mark, text[: found.start].count("\n") + 1) == (mark, line)


@pytest.mark.parametrize(
    "text",
    [
        "echo done if fi\n",
        "case $x in\n a) echo;;\nesac\n",
        "cat <<E\n'\nE\n",
        'echo "a $(echo "b") `c "d"`" # it\'s\n',
        "run() {\n  for f in *; do if [ -e $f ]; then echo ${f%.}; fi; done\n}\n",
        "echo ${A:-'}'} \\\" \\'\n",
    ],
)
def test_what_is_closed(text: str) -> None:
    assert still_open(text) is None
