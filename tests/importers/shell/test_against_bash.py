"""Scripts whose words follow from the text alone: the reader and bash must agree word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_plan.importers.shell.reader import read_script
from precision_plan.importers.texts import Source
from tests.importers.shell.bash import started

SNIPPETS = {
    "words and quotes": r"""
        run a 'b c' "d e" f\ g "h"i'j' "" '' k\\l "m\"n" "o\p" 'q\r' "\$s" \$t
    """,
    "white space between expansions": r"""
        A=1; B="x y"; ARGS="--a 1"
        for part in "--b 2" "--c 3"; do
          ARGS="$ARGS $part"
        done
        run $ARGS "$A $B" "$A  $B" " $A ${B} " "$A $((A + 1)) $(echo z)" x"$A $B"y
        ARGS="$ARGS
        $B"
        run $ARGS
    """,
    "a missing continuation": """
        run --a 1 \\
          --b 2
        run --c 3
    """,
    "arrays": """
        ARGS=( --a 1
          # --b 2
          "c d"   # e
          'f' )
        run ${ARGS[@]} "${ARGS[@]}" ${ARGS[0]} ${#ARGS[@]} "x${ARGS[@]}y" "${ARGS[*]}"
        ARGS+=(--g "h i")
        run "${ARGS[@]}"
        EMPTY=()
        run a "${EMPTY[@]}" ${EMPTY[@]} b
    """,
    "words that the grammar tears": """
        N=3; M=4
        ARGS=(--freq [0]*$N+[1]*$M --next x*$N*2 a=$N+b)
        run "${ARGS[@]}" [0]*$N
    """,
    "word splitting": """
        X="  a   b  c "
        run $X "$X" p${X}q "p${X}q"
        Y=""
        run $Y "$Y" ${Y}z
        run $X$X
    """,
    "assignments": """
        A=1 B='two words' C="$A-$B"
        run "$A" "$B" "$C"
        A+=2
        run $A
        D=
        D=x run2 "$D"
        run "$D"
        export E=5 F="$A"
        run $E $F
    """,
    "defaults": """
        X=set; E=
        run ${X:-a} ${E:-b} ${E-c} ${X:+d} "${E:+e}" ${X-f} "${E:=g h}" "$E" ${X:?no}
        run "${X:-"a b"}" ${E:+"two words"}
    """,
    "prefixes and suffixes": """
        P=/a/b/c.tar.gz
        run ${P##*/} ${P#*/} ${P%.*} ${P%%.*} ${P%/*} ${P/b/x} ${P//a/y} ${P^^} ${P:3} ${P:1:3}
        run ${P: -3} ${#P} ${P,,}
    """,
    "arithmetic": """
        N=3
        run $((N * 4 + 1)) $((2 ** 10)) $(( (N - 5) / 2 )) $((N % 2)) $((N > 2)) $((-N)) $((N<<2))
        run $((N == 3 ? 7 : 8)) $(($N + ${N}))
        ((N++)); run $N; (( N += 4 )); run $N; ((N = N * 2)); run $N
        if ((N > 15)); then run more; fi
    """,
    "if": """
        A=b200; N=4; Z=
        if [ "$A" = b200 ]; then run 1; else run 2; fi
        if [[ $A == b* && -n "$A" ]]; then run 3; fi
        if [ "$N" -gt 3 ] && [ "$N" -lt 9 ]; then run 4; elif true; then run 5; fi
        if [[ -z $Z || $N -eq 1 ]]; then run 6; fi
        if ! [ "$A" != b200 ]; then run 7; fi
        if (( N > 5 )); then run 8; else run 9; fi
        if [[ $A =~ ^b[0-9]+$ ]]; then run 10; fi
        if [[ $A == "b*" ]]; then run 11; else run 12; fi
    """,
    "case": """
        A=gb200
        case "$A" in b200|gb200) R=mxfp8 ;; h*) R=blockwise ;; *) R=none ;; esac
        run $R
        case h100 in b*) run a;; h?00) run b;; *) run c;; esac
        case x in y) run d;; esac
    """,
    "lists": """
        true && run 1
        false && run 2
        false || run 3
        true || run 4
        [ a = a ] && X=1 || X=2
        [ a = b ] && Y=1 || Y=2
        run $X $Y
        { run 5; run 6; }
    """,
    "loops": """
        for i in 1 2 3; do run "$i"; done
        for f in a b c d; do
          if [ $f = b ]; then continue; fi
          if [ $f = d ]; then break; fi
          run $f
        done
        N=0
        while [ $N -lt 3 ]; do N=$((N + 1)); done
        run $N
        for i in {1..3} {5..4}; do run $i; done
    """,
    "counted loops": """
        N=5; K=2
        arr=()
        for ((i=0; i<N; i++)); do
          if (( i < K )); then arr+=(0); else arr+=(1); fi
        done
        printf -v FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"
        run --moe-layer-freq "$FREQ" $i
        for ((j = 3; j > 0; j -= 2)); do run $j; done
    """,
    "functions": """
        add() { ARGS+=("--$1" "$2"); local hidden=1; }
        function twice { run "$@" "$#"; run2 "$1"; return 0; run never; }
        ARGS=()
        add tp 2; add pp 4
        run "${ARGS[@]}" "${hidden-gone}"
        twice a "b c"
    """,
    "substitutions": """
        run $(echo a b) "$(echo a b)" $(seq 2 4) $(dirname /a/b/c) $(basename /a/b.sh .sh)
        run "$(printf '%s' x)" $(echo $(echo y)) "$(dirname "$(dirname /a/b/c)")"
        J=$(cat <<EOF
{"a": "$(echo v)", "b": \\$c}
EOF
)
        run "$J"
        K=$(cat <<'EOF'
{"a": "$X"}
EOF
)
        run "$K"
    """,
    "nested quotes in JSON": r"""
        N=1
        J="{
          \"env_vars\": {
            \"A\": \"${N}\",
            \"B\": \"x y\"
          }
        }"
        run --env="${J}" --env "$J" --raw='{"c": "${N}"}'
    """,
    "subshells": """
        X=1
        ( X=2; run $X )
        run $X
        echo a | run b
    """,
    "indirect": """
        NAME=TARGET; TARGET=42
        run ${!NAME}
    """,
    "set": """
        set -- a "b c" d
        run "$1" "$2" $# "$@"
        shift
        run "$1"
        while [ $# -gt 0 ]; do run "$1"; shift; done
    """,
    "dollar quotes": r"""
        run $'a\tb' $'it\'s'
    """,
    "here strings and redirections": """
        run a <<< "b" > /dev/null
        run c 2>&1
        X=$(cat <<< "text")
        run "$X"
    """,
    "nested shells": """
        export A=1
        B=2
        bash -c 'run "$A" "${B-none}"' 2>/dev/null
    """,
    "exit": """
        run 1
        if true; then exit 0; fi
        run 2
    """,
    "unset": """
        X=1; unset X
        run "${X:-gone}"
    """,
    "tildes, globs and braces that stay": """
        run a=b --x=y 'a*b' "{a,b}" -- - --
    """,
}


def dedented(text: str) -> str:
    lines = text.split("\n")[1:]
    margin = min(
        (len(line) - len(line.lstrip()) for line in lines if line.startswith(" ")), default=0
    )
    return "\n".join(line[margin:] if line.startswith(" " * margin) else line for line in lines)


@pytest.mark.parametrize("name", SNIPPETS)
def test_reader_and_bash_agree(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(dedented(SNIPPETS[name]))
    reading = read_script(Source(str(script), script.read_bytes()))
    expected = started(script, tmp_path)
    assert expected, "bash starts something"
    found = [[word.shown for word in command.words] for command in reading.commands]
    assert found == expected
