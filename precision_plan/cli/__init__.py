"""The command line: one file per verb, imported only when that verb is asked for."""

from __future__ import annotations

import sys

VERBS = {
    "plan": "compile one recipe and print what would be launched (the dry run)",
    "lint": "check recipes, configuration folders and checkpoint folders",
    "import": "turn a launch script into a recipe; what is not understood is listed",
    "preflight": "look at what a recipe names on this machine: its checkpoint",
    "rules": "list the rules, or write their pages",
    "explain": "the page of a rule, flag or environment variable",
    "why": "where a setting of a recipe or script comes from, and what it does",
    "diff": "what differs between two recipes, scripts or lock files",
    "lock": "write down what a recipe or script compiles to; lint --lock compares with it",
    "matrix": "which trained format goes with which rollout format on which GPU",
    "schema": "JSON Schema of a recipe, for editors",
    "catalog": "compare another upstream version with the facts (for maintainers)",
}
"""Every verb with its one line of help; ``precision_plan.cli.VERB`` is its module (``import_``)."""

PROGRAM = "precision-plan"


def run(argv: list[str]) -> int:
    """Run one command line (without the program's name) and return the exit code.

    Usage errors are one line and a hint on stderr, exit code 2. An interrupted run ends
    quietly with 130 and a stream that nobody reads any more with 141, as a shell reports them.
    """
    verb = argv[0] if argv else "--help"
    if verb in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0 if argv else 2
    try:
        if verb not in VERBS:
            return _unknown(verb)
        return _run_verb(verb, argv[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a stream of answers has gone away
        from precision_plan.cli._output import discard_output

        discard_output()
        return 141


def _run_verb(verb: str, argv: list[str]) -> int:
    from importlib import import_module
    from keyword import iskeyword

    from precision_plan.cli._arguments import Parser, UsageError

    module = import_module(f"precision_plan.cli.{verb}{'_' * iskeyword(verb)}")
    parser = Parser(prog=f"{PROGRAM} {verb}", description=module.__doc__)
    try:
        module.configure(parser)
        prepare = getattr(module, "prepare", list)
        code: int = module.run(parser.parse_intermixed_args(prepare(argv)))
    except UsageError as error:
        return _fail(str(error), error.hint or f"{PROGRAM} {verb} --help")
    except SystemExit as stop:  # --help
        return int(stop.code or 0)
    return code


def _unknown(verb: str) -> int:
    from precision_plan.cli._arguments import closest

    if verb.startswith("-"):
        return _fail(f"unknown option {verb!r} before a verb", f"{PROGRAM} --help")
    found = closest(verb, VERBS)
    hint = f"did you mean {found!r}?" if found else f"{PROGRAM} --help lists the verbs"
    return _fail(f"there is no verb {verb!r}", hint)


def _fail(message: str, hint: str) -> int:
    sys.stderr.write(f"{PROGRAM}: {message}\n  hint: {hint}\n")
    return 2


def _help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} VERB ...",
            "",
            "Compiles a recipe into precision settings for Megatron-LM, Transformer Engine, vLLM",
            "and Ray, and checks them before anything starts.",
            "",
            *lines,
            "",
            f"{PROGRAM} VERB --help explains a verb; {PROGRAM} --version prints the version.",
            "Exit codes: 0 clean, 1 findings, 2 usage or broken input.",
            "",
        ]
    )
