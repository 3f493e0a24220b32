"""List the rules, or write one page for each."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from precision_plan.cli._arguments import Parser, UsageError, add_output_options
from precision_plan.cli._output import emit, replace_file, use_color, width


def configure(parser: Parser) -> None:
    """Options of the verb."""
    add_output_options(parser, ("text", "json", "markdown"))
    parser.epilog = "With --format markdown, -o names a folder: one page per rule and an index."


def run(args: Namespace) -> int:
    """List or write; always 0."""
    from precision_plan.cli._pages import pages

    known = pages()
    if args.format == "markdown":
        from precision_plan.render import markdown

        if args.output is None:
            emit(markdown.index(known))
        else:
            _write(Path(args.output), markdown.pages(known))
    elif args.format == "json":
        import json

        from precision_plan.render._pages import page_data

        emit(json.dumps([page_data(page) for page in known], indent=2) + "\n", args.output)
    else:
        from precision_plan.render._pages import list_text

        color = use_color(args.color, sys.stdout) and args.output is None
        emit(list_text(known, width=width(sys.stdout), color=color), args.output)
    return 0


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the pages that differ, and remove the pages of rules that are gone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                replace_file(path, text)
        for path in folder.glob("PP[0-9][0-9][0-9].md"):
            if path.name not in files:
                path.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
