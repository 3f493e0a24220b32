"""Slips of the pen that bash takes for something else: PP941, PP943 and PP944."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_plan.importers.shell.state import Shell
from precision_plan.importers.shell.tree import text_of
from precision_plan.importers.texts import Text
from precision_plan.plan import Because, Fix
from precision_plan.plan.codes import compose_diagnostic

if TYPE_CHECKING:
    from tree_sitter import Node


def lost_backslash(shell: Shell, node: Node, found: list[Text]) -> None:
    """A command whose name is a flag: the line before lost its backslash.

    Behind an assignment or a redirection it is no line of its own: what the grammar makes of
    ``DATA=<your folder>`` is such a command.
    """
    if node.children[0].type != "command_name":
        return
    before = shell.source.data[: node.start_byte].rstrip(b" \t")
    line = before.rpartition(b"\n")[0].rpartition(b"\n")[2]
    if line.rstrip().endswith(b"\\"):
        why = "the backslash on the line before is followed by a space, so that the line ends there"
    elif line.lstrip().startswith(b"#"):
        why = "a comment between the lines ends the command"
    else:
        why = "the line before does not end with a backslash"
    shell.find(
        compose_diagnostic(
            "PP941",
            f"{found[0].shown} is run as a command of its own: it belongs to no command",
            shell.origin(node),
            because=(Because(why),),
            fix=(Fix("continue the line before with a backslash as its last character"),),
            stage="parse",
        )
    )


def is_spaced_assignment(shell: Shell, node: Node) -> bool:
    """``RECIPE = mxfp8``: the shell looks for a program of that name."""
    if len(node.children) < 2 or node.children[0].type != "command_name":
        return False
    name, sign = (text_of(child, shell.source) for child in node.children[:2])
    if not name.isidentifier() or not sign.startswith("=") or sign.startswith("=="):
        return False
    shell.find(
        compose_diagnostic(
            "PP944",
            f"{name} with a space before its equals sign is run as a command",
            shell.origin(node),
            fix=(Fix(f"write {name}= without spaces around the sign"),),
            stage="run",
        )
    )
    return True


def never_set(shell: Shell) -> None:
    """Arrays with a slip in their name: the one that is meant is used nowhere."""
    for (name, origin), (close, at) in shell.suspects.items():
        if at not in shell.used:
            shell.find(
                compose_diagnostic(
                    "PP943",
                    f"nothing sets {name}; {close} is set and never used",
                    origin,
                    because=(
                        Because(f"{close} is set here", origin=shell.sources[at[0]].origin(at[1])),
                    ),
                    fix=(Fix(f"did you mean {close}?"),),
                    stage="run",
                )
            )
