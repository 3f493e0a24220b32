"""A command of a script -> the plan of what it starts, or nothing if it starts no launch.

Every word of a launch is accounted for (:data:`importers.jobs.Use`); what cannot be known before
it runs is not known in the plan, either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_plan.facts.frameworks import RL_FRAMEWORKS
from precision_plan.facts.vllm import DEFAULT_VERSION as DEFAULT_VLLM
from precision_plan.importers.argv import Hidden, Parsed, parse
from precision_plan.importers.declarations import NOTHING_DECLARED, Declared
from precision_plan.importers.frameworks import frameworks_of
from precision_plan.importers.job_env import JobEnv, job_env, reference_text
from precision_plan.importers.job_findings import (
    Judged,
    Reader,
    argument_findings,
    engine_findings,
)
from precision_plan.importers.jobs import (
    Command,
    ImportedJob,
    Leftover,
    LeftoverKind,
    ScriptReading,
    Use,
)
from precision_plan.importers.launch_words import Launch, launch_of
from precision_plan.importers.open_words import (
    before,
    is_filled,
    is_of_a_model,
    reference,
    splits,
    unquoted,
)
from precision_plan.importers.rows import plan_of, takes
from precision_plan.importers.texts import Text
from precision_plan.importers.vllm_argv import parse_engine_arguments
from precision_plan.plan import Diagnostic, Origin
from precision_plan.plan.unknown import with_unknown

FREE_TEXTS = frozenset(
    {
        "checkpoint.hf_checkpoint",
        "checkpoint.ref_load",
        "checkpoint.load",
        "checkpoint.save",
        "weight_sync.update_weight_disk_dir",
        "training.te_precision_config_file",
        "training.kitchen_config_file",
    }
)
"""Fields that hold a path: one with an unknown part is kept as it is spelt."""

_SCOPES = ("all", "driver", "train_actor", "rollout_engine", "vllm_worker")
"""Whose variables a runtime environment may set."""

_TRAIN_ENV = "train_env_vars"


def jobs_of(
    reading: ScriptReading, declared: Declared = NOTHING_DECLARED
) -> tuple[ImportedJob, ...]:
    """Every launch of a script, each with the way to it."""
    unread = any(leftover.kind == "source" for leftover in reading.leftovers)
    shared: _Shared = {}
    found = (
        job_of(command, declared, unread=unread, shared=shared) for command in reading.commands
    )
    return tuple(job for job in found if job is not None)


_Shared = dict[tuple[object, ...], "_Job"]
"""Launches whose arguments are read, by all that these depend on."""


def job_of(
    command: Command,
    declared: Declared = NOTHING_DECLARED,
    *,
    unread: bool = False,
    shared: _Shared | None = None,
) -> ImportedJob | None:
    """The launch that ``command`` is, as a plan; ``None`` if it is none.

    ``declared`` is the target: what the file says of it, and what was given from outside.
    ``unread``: a file that may set the script's variables was not read. ``shared`` are launches of
    the same script; ways that differ in the environment alone have their arguments in common.
    """
    command, quoted = unquoted(command)
    launch = launch_of(command)
    if launch is None:
        return None
    words = command.words[launch.first :]
    candidates = frameworks_of(launch, words, declared.values.get("framework"))
    if not candidates:
        return None
    versions = declared.values.get
    reader = Reader(
        candidates,
        versions("megatron_core"),
        versions("vllm"),
        complete=launch.row is not None and launch.row.complete and candidates == ("megatron-lm",),
    )
    job = _Job(command, launch, words, unread=unread)
    job.arguments(reader, {} if shared is None else shared)
    job.diagnostics[:0] = quoted
    job.environment(any(each in RL_FRAMEWORKS for each in candidates))
    job.start()
    return job.finished(candidates, declared)


@dataclass(slots=True)
class _Job:
    """A launch while it is read."""

    command: Command
    launch: Launch
    words: Sequence[Text]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    words_left: dict[int, Leftover] = field(default_factory=dict)
    left: dict[int, Use] = field(default_factory=dict)
    train_env: Text | None = None
    unread: bool = False

    def at(self, index: int) -> Origin:
        """Where an argument was written."""
        return self.words[index].origin if index < len(self.words) else self.command.origin

    def set(self, name: str, value: Any, origin: Origin) -> None:
        """Set a plan field."""
        section, _, key = name.partition(".")
        self.sections.setdefault(section, {})[key] = value
        self.origins[name] = origin

    # Arguments ----------------------------------------------------------------------------------
    def arguments(self, reader: Reader, shared: _Shared) -> None:
        """The arguments of the program, read once for all ways that start it with the same."""
        pieces = tuple(word.pieces for word in self.words)
        key = (reader, pieces, self.launch.program, self.command.origin, self.unread)
        known = shared.get(key)
        if known is not None:
            self._take_over(known)
            return
        if reader.frameworks == ("vllm",):
            self.engine(reader)
        else:
            self.trainer(reader)
        copy = shared[key] = _Job(self.command, self.launch, self.words)
        copy._take_over(self)

    def _take_over(self, other: _Job) -> None:
        self.sections = {name: dict(values) for name, values in other.sections.items()}
        self.origins, self.extra = dict(other.origins), dict(other.extra)
        self.unknown, self.open = set(other.unknown), set(other.open)
        self.diagnostics, self.leftovers = list(other.diagnostics), list(other.leftovers)
        self.left, self.words_left = dict(other.left), dict(other.words_left)
        self.train_env = other.train_env

    def trainer(self, reader: Reader) -> None:
        """The arguments of a training program."""
        argv, hidden = self._argv()
        parsed = parse(argv, reader.options(), hidden=hidden)
        self._take(parsed, argument_findings(parsed, reader, self.at), reader.complete)
        open_words = [self.words[index] for index in parsed.open]
        filled = [word for word in open_words if is_filled(word, self.unread)]
        if filled:
            fields = {option.field for option in reader.options().values() if option.field}
            if all("MODEL" in word.shown.upper() for word in filled):
                fields = set(filter(is_of_a_model, fields))
            self.open = fields - set(parsed.values)

    def engine(self, reader: Reader) -> None:
        """The arguments of ``vllm serve``, and the model before them."""
        argv, hidden = self._argv()
        parsed = parse_engine_arguments(argv, reader.vllm or DEFAULT_VLLM, hidden)
        self._take(parsed, engine_findings(parsed, reader.vllm, DEFAULT_VLLM, self.at), True)
        model = self.extra.pop("model", None)
        if model is not None:
            self.set("checkpoint.hf_checkpoint", model, self.at(parsed.indices["model"]))
        elif argv and not argv[0].startswith("-"):
            model = reference_text(self.words[0])
            self.set("checkpoint.hf_checkpoint", model, self.at(0))

    def _argv(self) -> tuple[list[str], dict[int, Hidden]]:
        argv = [word.shown for word in self.words]
        hidden = {
            index: Hidden(before(word), splits(word))
            for index, word in enumerate(self.words)
            if not word.known
        }
        return argv, hidden

    def _take(self, parsed: Parsed, judged: Judged, strict: bool) -> None:
        self.diagnostics += judged.diagnostics
        for name, value in parsed.values.items():
            self._field(name, value, parsed)
        for dest, value in parsed.others.items():
            if dest == _TRAIN_ENV:
                self.train_env = self._value_of(parsed.indices[dest])
            else:
                self._extra(dest, value, parsed)
        self._unread(parsed, judged, strict)

    def _field(self, name: str, value: Any, parsed: Parsed) -> None:
        index = parsed.indices[name]
        section, _, key = name.partition(".")
        if name in parsed.unknown:
            if name in FREE_TEXTS:
                self.set(name, reference(value), self.at(index))
            else:
                self.unknown.add(name)
                self.origins[name] = self.at(index)
        elif value is None:
            return
        elif takes(section, key, value):
            self.set(name, value, self.at(index))
        elif isinstance(value, tuple) and len(value) == 1 and takes(section, key, value[0]):
            self.set(name, value[0], self.at(index))  # one of a list, where the plan has one
        else:
            self.origins[name] = self.at(index)
            self._refused(name, value, index)

    def _refused(self, name: str, value: Any, index: int) -> None:
        """A value that a parser takes and no plan can hold; PP421 speaks of a cache's dtype."""
        if name == "rollout.kv_cache_dtype":
            serves = self.launch.program == "vllm"
            written = self.words[index].shown.partition("=")[0]
            self.extra["kv_cache_dtype" if serves else _key(written)] = value
            return
        self.unknown.add(name)
        self._left_over(self._value_index(index), "word", f"{name} takes no such value")

    def _extra(self, dest: str, value: Any, parsed: Parsed) -> None:
        """An argument that no plan field holds: by its dest, or its flag where that says more."""
        if dest in parsed.unknown:
            value = reference(value)
        key, index = dest, parsed.indices.get(dest)
        if index is not None:
            written = self.words[index].shown.partition("=")[0]
            flag = _key(written)
            plain = flag.replace("-", "_") == dest and value is not False
            if self.launch.program != "vllm" and written.startswith("--") and not plain:
                key, value = flag, True if value is False else value
            self.origins[f"launch.extra_args.{key}"] = self.at(index)
        self.extra[key] = value

    def _value_index(self, index: int) -> int:
        """The word that holds the value of the option at ``index``, or its first one."""
        return index if "=" in self.words[index].shown else min(index + 1, len(self.words) - 1)

    def _value_of(self, index: int) -> Text:
        """The value of the option at ``index``: behind its ``=``, or the next word."""
        shown = self.words[index].shown
        name, equals, _ = shown.partition("=")
        if equals:
            return self.words[index].part(len(name) + 1)
        return self.words[index + 1]

    def _unread(self, parsed: Parsed, judged: Judged, strict: bool) -> None:
        """Words that no option took: unknown flags are passed on, the rest is left over."""
        flags = {each.index: each for each in parsed.problems if each.kind == "unknown"}
        left, index = sorted(set(parsed.left)), 0
        while index < len(left):
            start = left[index]
            run = [start]
            index += 1
            if start not in flags:
                self._leave(start, parsed)
                continue
            while index < len(left) and left[index] == run[-1] + 1 and left[index] not in flags:
                run.append(left[index])
                index += 1
            if strict or start in judged.refused:
                for each in run:
                    self._leave(each, parsed, judged.refused.get(start, "no option of the parser"))
            else:
                self._pass(run)

    def _pass(self, run: Sequence[int]) -> None:
        name, equals, value = self.words[run[0]].shown.partition("=")
        texts = [reference_text(self.words[index]) for index in run[1:]]
        if equals:
            texts.insert(0, value)
        key = _key(name)
        self.extra[key] = True if not texts else texts[0] if len(texts) == 1 else texts
        self.origins[f"launch.extra_args.{key}"] = self.at(run[0])
        self.left.update(dict.fromkeys(run, "passed"))

    def _leave(self, index: int, parsed: Parsed, because: str = "") -> None:
        if index in parsed.open:
            why = "may be any arguments: what they set is not known"
            self._left_over(index, "arguments", because or why)
        else:
            self._left_over(index, "word", because or "belongs to no option")

    def _left_over(self, index: int, kind: LeftoverKind, because: str) -> None:
        word = self.words[index]
        self.left[index] = "left"
        self.words_left[index] = Leftover(kind, word.shown, word.origin, because)

    # Around the arguments -----------------------------------------------------------------------
    def environment(self, is_ray: bool) -> None:
        """The variables of the launch's processes."""
        found: JobEnv = job_env(
            self.launch, self.command.ray_env, is_ray=is_ray, train_env=self.train_env
        )
        for scope, variables in found.scopes.items():
            self.sections.setdefault("env", {})[scope] = variables
        if found.open:
            given = self.sections.get("env", {})
            self.open |= {f"env.{scope}" for scope in _SCOPES if scope not in given}
        self.origins.update(found.origins)
        for name, (value, origin) in found.launch.items():
            self.set(f"launch.{name}", value, origin)
        self.diagnostics += found.diagnostics
        self.leftovers += found.leftovers

    def start(self) -> None:
        """What is run, and on how many GPUs."""
        entry = self.launch.entry
        if entry is not None:
            self.set("launch.entrypoint", reference_text(entry), entry.origin)
        for option, name in (("--nnodes", "nodes"), ("--nproc-per-node", "gpus_per_node")):
            value = self.launch.options.get(option)
            if value is not None and value.known and value.shown.isdecimal() and int(value.shown):
                self.set(f"hardware.{name}", int(value.shown), value.origin)

    def finished(self, candidates: tuple[str, ...], declared: Declared) -> ImportedJob:
        """Everything together."""
        if self.extra:
            self.sections.setdefault("launch", {})["extra_args"] = self.extra
        if len(candidates) == 1:
            self.sections["software"] = {"framework": candidates[0]}
        plan = plan_of(self.sections).model_copy(update={"origins": self.origins})
        outside = {
            key: value
            for key, value in declared.values.items()
            if key != "framework" and not self._is_set(key)
        }
        plan = Declared(outside, declared.origins).into(plan)
        unknown = self.unknown if len(candidates) == 1 else {*self.unknown, "software.framework"}
        return ImportedJob(
            with_unknown(plan, sorted(unknown | self.open)),
            candidates,
            tuple(sorted(unknown)),
            tuple(self.diagnostics),
            (*(self.words_left[index] for index in sorted(self.words_left)), *self.leftovers),
            self.command,
            self._uses(),
        )

    def _is_set(self, key: str) -> bool:
        return f"rollout.{key}" in self.unknown

    def _uses(self) -> tuple[Use, ...]:
        uses: list[Use] = ["launch"] * self.launch.first
        uses += [self.left.get(index, "read") for index in range(len(self.words))]
        return tuple(uses)


def _key(flag: str) -> str:
    """A flag as a key of ``launch.extra_args``: with its dashes, if it is not spelt with them."""
    spelt = flag.startswith("--") and "_" not in flag
    return flag[2:] if spelt else flag
