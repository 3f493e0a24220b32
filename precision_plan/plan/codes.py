"""Findings about a text, before there is a plan that rules could read.

PP0xx speak of a recipe and are reported by ``compose``, PP9xx of a command line and are reported
by ``importers``; neither has a check function. ``broken`` ones mean that the input could not be
read at all (exit code 2); the others are ordinary findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from precision_plan.plan.diagnostic import Because, Diagnostic, Fix, Severity, Stage
from precision_plan.plan.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Code:
    """One such finding: identity, severity and its page.

    ``fixable``: its first fix may be safe, so that ``lint --fix`` applies it.
    """

    id: str
    slug: str
    severity: Severity
    broken: bool
    summary: str
    why: str
    fixable: bool = False


_CODES = (
    Code("PP001", "broken-yaml", "error", True, "The file is not YAML",
         "Nothing can be said about a file that does not parse; the position is the parser's."),
    Code("PP002", "unknown-key", "error", False, "The plan has no such key",
         "A misspelt key would otherwise be ignored and something else be trained. The closest "
         "known keys are offered.", fixable=True),
    Code("PP003", "invalid-value", "error", False, "The key does not take this value",
         "Values are spelt as Megatron, Transformer Engine or vLLM spell them.", fixable=True),
    Code("PP004", "wrong-type", "error", False, "The value has the wrong type",
         "Values are not coerced: the text 'yes' is not the boolean true.", fixable=True),
    Code("PP005", "not-a-mapping", "error", True, "A list or scalar stands where a mapping belongs",
         "A recipe is a mapping of sections, and a section is a mapping of keys."),
    Code("PP006", "missing-choice", "error", True, "A group or choice does not exist",
         "The defaults list or an override names a file that is in no search path."),
    Code("PP007", "cyclic-defaults", "error", True, "Defaults lists include each other",
         "A file that includes itself has no composition."),
    Code("PP008", "duplicate-key", "error", True, "A key is written twice in one mapping",
         "YAML readers keep one of the two in silence."),
    Code("PP009", "override-syntax", "error", True, "An override cannot be read",
         "Overrides follow Hydra's grammar: key=value, +key=value, ~key."),
    Code("PP010", "unreadable-file", "error", True, "The file cannot be read",
         "It is missing, not a regular file, not text in UTF-8, or not permitted."),
    Code("PP011", "empty-file", "error", True, "The file holds nothing",
         "An empty recipe would compose to the defaults, which is hardly what was meant."),
    Code("PP012", "oversized-value", "error", True, "A value or file is larger than any recipe",
         "A file over the limit is data or an accident, and is not parsed."),
    Code("PP013", "recipe-without-title", "warning", False, "A recipe does not say what it is",
         "Whoever launches a recipe must see where it comes from and how far it is proven."),
    Code("PP014", "unresolved-interpolation", "error", True, "An interpolation has no value",
         "${...} names a key that no layer sets, or a resolver that recipes may not call."),
    Code("PP015", "refused-construct", "error", True, "The recipe asks for code to be run",
         "Recipes are data: _target_ and YAML tags that construct objects are refused."),
    Code("PP016", "unusable-defaults", "error", True, "A defaults list cannot be followed",
         "Entries of a defaults list are 'group: choice', 'override /group: choice', a name or "
         "_self_; a group stands in the lists once, and overrides end a list."),
    Code("PP020", "suppression-without-reason", "error", False, "A suppression gives no reason",
         "Whoever reads the comment later must know why the finding does not matter."),
    Code("PP021", "unused-suppression", "warning", False, "A suppression silences nothing",
         "It would hide the next, different finding on that line.", fixable=True),
    Code("PP030", "plan-differs-from-lock", "error", False, "A setting is not the locked one",
         "A lock says what a run was started with. Whoever resumes or repeats it must know that a "
         "setting is another one today."),
    Code("PP031", "effect-differs-from-lock", "error", False,
         "What the plan lowers to is not what was locked",
         "The same recipe may lower to other flags, variables or arguments: because other "
         "settings changed, or because this program knows more than the one that wrote the lock."),
    Code("PP032", "resume-loses-state", "error", False,
         "The checkpoint does not hold the state that the changed formats need",
         "A resumed run loads what was saved in the locked formats. Megatron compares the shape "
         "of the model, not its formats, so that nothing stops it."),
    Code("PP033", "resume-converts-state", "warning", False,
         "The checkpoint's state is converted to the changed formats",
         "It loads, and the values are rounded once more; the run is not the continuation of the "
         "saved one to the last bit."),
    Code("PP034", "broken-lock", "error", True, "The lock file cannot be read",
         "It is no JSON, no lock, or a lock of which a part is missing: nothing can be compared."),
    Code("PP035", "lock-of-another-version", "error", True,
         "The lock file was written in another schema version",
         "Keys may have other names or meanings there, so that a comparison would not be true."),
    Code("PP036", "no-single-launch", "error", True,
         "It is not said which launch of a script is meant",
         "A script may start nothing that is known, several things, or one thing in several ways: "
         "one of them can be compared, not all at once."),
    Code("PP901", "unknown-flag", "error", False, "The parser has no such option",
         "Megatron-LM and miles refuse it; vime and slime drop it in silence, so that what it "
         "asked for does not happen.", fixable=True),
    Code("PP902", "flag-value-refused", "error", False, "The option does not take this value",
         "Argparse checks type and choices before anything else runs."),
    Code("PP903", "flag-value-count", "error", False, "The option has too few or too many values",
         "Argparse refuses an option without its value, and a value for a switch."),
    Code("PP904", "stray-value", "error", False, "A value belongs to no option",
         "Often a lost backslash at the end of a line, or a value written with a space too many."),
    Code("PP905", "ambiguous-flag", "error", False, "An abbreviation fits several options",
         "The frameworks' parsers accept abbreviations where they are unique."),
    Code("PP906", "repeated-flag", "warning", False, "An option is given twice with other values",
         "The last one wins; whoever reads the first one is misled."),
    Code("PP907", "target-comment-refused", "error", False,
         "A precision-plan comment declares something that no target has",
         "The comment says for which GPU, framework and versions a file is judged; a misspelt key "
         "would leave rules silent that were meant to run."),
    Code("PP908", "two-runtime-envs", "error", False, 
         "ray job submit takes one runtime environment",
         "With --runtime-env and --runtime-env-json together the command stops with a ValueError."),
    Code("PP909", "entrypoint-in-quotes", "error", False,
         "The job's whole command is one quoted word",
         "ray job submit quotes each word of the command again, so that the shell on the cluster "
         "looks for a program whose name is the whole line, and finds none."),
    Code("PP911", "misspelt-flag", "error", False, "A precision flag is misspelt",
         "vime and slime pass over what they do not know: the run starts, and trains without the "
         "setting. miles and Megatron-LM stop. The known flag that is close is named."),
    Code("PP913", "runtime-env-key-misspelt", "error", False,
         "A key of the runtime environment is misspelt",
         "Ray accepts any key in silence, so that what stands below a misspelt one is not done: "
         "a job with env_var instead of env_vars runs without its variables."),
    Code("PP914", "variable-is-no-text", "error", False,
         "A variable's value is a number, a boolean or nothing",
         "Ray takes texts only and raises TypeError before the job or the actor starts; Kubernetes "
         "refuses the object, and docker compose a boolean. Write the value in quotes.",
         fixable=True),
    Code("PP915", "broken-json", "error", False, "A JSON or YAML text of the launch cannot be read",
         "The program that reads it stops; a lost comma or quote is the usual reason."),
    Code("PP916", "json-key-twice", "warning", False, "A key stands twice in a JSON object",
         "The last one counts; whoever reads the first one is misled."),
    Code("PP921", "flag-dropped-in-silence", "warning", False,
         "The framework does not know this flag and passes over it",
         "vime and slime parse with parse_known_args: a misspelt flag does nothing, and nobody "
         "says so. Reported where a known flag is close."),
    Code("PP940", "sourced-file-missing", "error", False,
         "A file that the script sources does not exist",
         "With set -e the script stops there; without it, everything that the file would set is "
         "missing. Public scripts have been released with such a path."),
    Code("PP941", "lost-continuation", "error", False, "Flags stand on a line of their own",
         "The command before them ended: its line has no backslash, or a space behind it, or a "
         "comment follows. The job starts without the flags."),
    Code("PP943", "array-never-set", "warning", False,
         "An array is expanded that nothing sets, and one of nearly the same name is never used",
         "Bash puts nothing in its place: the job starts without the flags, and nobody says so. "
         "Arrays do not come from the environment."),
    Code("PP944", "spaces-around-equals", "error", False,
         "An assignment has spaces around its equals sign",
         "Bash takes the name for a program, does not find it, and leaves the variable unset; an "
         "array in brackets behind it is a syntax error."),
    Code("PP942", "unclosed-script", "error", True, "A quote or bracket is never closed",
         "Bash takes the rest of the file for text, or stops at its end."),
    Code("PP960", "broken-python", "error", True, "A launcher is no Python",
         "It is read by its syntax tree, and there is none: Python stops at this place, too."),
    Code("PP910", "broken-row", "error", True, "A line is not a JSON object of the expected shape",
         "Batch linting reads one object a line: id, framework, versions, gpu, env, argv."),
)  # fmt: skip

CODES: Mapping[str, Code] = MappingProxyType({code.id: code for code in _CODES})

_BROKEN_FOLDERS = frozenset({"PP710", "PP711"})
"""Rules that say that a checkpoint folder could not be read at all."""


def compose_diagnostic(
    id: str,
    message: str,
    origin: Origin = UNKNOWN,
    *,
    field: str | None = None,
    because: tuple[Because, ...] = (),
    fix: tuple[Fix, ...] = (),
    stage: Stage = "compose",
    **changes: Any,
) -> Diagnostic:
    """A diagnostic with the identity and severity of its code."""
    code = CODES[id]
    return Diagnostic(
        id=code.id,
        slug=code.slug,
        severity=code.severity,
        message=message,
        field=field,
        origin=origin,
        because=because,
        fix=fix,
        stage=stage,
        **changes,
    )


def is_broken_input(diagnostic: Diagnostic) -> bool:
    """True if the diagnostic says that the input could not be read (exit code 2)."""
    code = CODES.get(diagnostic.id)
    return diagnostic.id in _BROKEN_FOLDERS or (code is not None and code.broken)
