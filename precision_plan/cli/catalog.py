"""For maintainers: compare the sources of another upstream version with the facts.

Sources are read as text; nothing of them is imported or run. PATH is a checkout, a site-packages
folder, an unpacked wheel, or a .whl or .tar.gz file; the word installed stands for the
distribution in this environment.
"""

from __future__ import annotations

from argparse import Namespace

from precision_plan.cli._arguments import Parser, UsageError, add_destination, closest
from precision_plan.cli._output import emit

_OPTIONS = {
    "megatron": ("megatron_core", "flags, configuration fields and variables"),
    "te": ("transformer_engine", "recipe classes and variables"),
    "vllm": ("vllm", "arguments, methods, attention backends and variables"),
}
"""Option, the package's key in the facts, and what is compared of it."""


def configure(parser: Parser) -> None:
    """Options of the verb."""
    parser.add_argument("action", choices=("diff",), help="list what changed against the facts")
    for option, (package, what) in _OPTIONS.items():
        parser.add_argument(
            f"--{option}", metavar="PATH", help=f"sources of {package}: {what} (or: installed)"
        )
    parser.add_argument(
        "--version",
        metavar="[PACKAGE=]V",
        action="append",
        default=[],
        help="version of the facts to compare with (default: the one that the sources tell)",
    )
    parser.add_argument(
        "--all", action="store_true", help="list what does not concern precision, too"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    add_destination(parser)
    parser.epilog = "Exit codes: 0 no drift, 1 drift, 2 sources that cannot be read."


def run(args: Namespace) -> int:
    """Print what changed; 0 nothing, 1 something, 2 unreadable sources."""
    from precision_plan.drift import render
    from precision_plan.drift.check import CHECKS
    from precision_plan.drift.source import SourceError

    wanted = {
        package: getattr(args, option)
        for option, (package, _) in _OPTIONS.items()
        if getattr(args, option) is not None
    }
    if not wanted:
        raise UsageError(
            "no sources named", "for example --megatron installed --te ~/src/TransformerEngine"
        )
    versions = versions_of(args.version, list(wanted))
    try:
        reports = [
            CHECKS[package](where, versions.get(package)) for package, where in wanted.items()
        ]
    except SourceError as error:
        raise UsageError(str(error), error.hint) from error
    text = (
        render.as_json(reports)
        if args.format == "json"
        else render.as_text(reports, every=args.all)
    )
    emit(text, args.output)
    return int(any(report.changes for report in reports))


def versions_of(words: list[str], packages: list[str]) -> dict[str, str]:
    """``["0.16.1"]`` or ``["vllm=0.33.0"]`` as a mapping from package to version.

    Raises:
        UsageError: if a version stands alone beside several packages, or names another package.
    """
    versions: dict[str, str] = {}
    for word in words:
        package, equals, text = word.rpartition("=")
        if not equals and len(packages) > 1:
            raise UsageError(
                f"--version {word}: of which package?", f"for example {packages[0]}={word}"
            )
        package = package or packages[0]
        if package not in packages:
            found = closest(package, packages)
            hint = f"did you mean {found}?" if found else f"one of {', '.join(packages)}"
            raise UsageError(f"--version {word}: no sources of {package!r} are named", hint)
        versions[package] = text
    return versions
