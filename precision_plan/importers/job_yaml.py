"""Launches and environments in YAML and JSON files: Ray's, docker compose's, Kubernetes'.

What the file says is taken as it stands; a ``${NAME}`` that compose or Ray fills in later is not
known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from precision_plan.compose.document import Document, parse_document
from precision_plan.compose.reading import Unreadable
from precision_plan.facts.launches import runtime_env_keys
from precision_plan.importers.declarations import NOTHING_DECLARED, Declared
from precision_plan.importers.job_env import JobEnv, not_a_text, runtime_env
from precision_plan.importers.job_plan import job_of
from precision_plan.importers.jobs import Command, ImportedJob, Leftover
from precision_plan.importers.json_words import JsonText, read_json
from precision_plan.importers.rows import plan_of
from precision_plan.importers.texts import Piece, Source, Text, literal
from precision_plan.plan import Diagnostic, Origin

_COMPOSE = "https://docs.docker.com/reference/compose-file/services/#environment"
_KUBERNETES = "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/"
_SEPARATOR = re.compile(r"^---[ \t]*(#.*)?$", re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})


@dataclass(slots=True)
class FileJobs:
    """What a file starts, and what it says of environments that no launch in it has."""

    jobs: list[ImportedJob] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def read_job_file(source: Source, declared: Declared = NOTHING_DECLARED) -> FileJobs | None:
    """The jobs of a YAML or JSON file; ``None`` if it is no file that describes any."""
    text = source.data.decode("utf-8", "replace")
    found = FileJobs()
    if source.file.endswith(".json"):
        read = read_json(literal(text, source))
        if not isinstance(read.value, dict) or not _is_runtime_env(read.value):
            return None
        _runtime_env(found, read, source, declared)
        return found
    seen = False
    for document in _documents(text, source, found):
        place = _Place(document, source)
        if _is_runtime_env(document.data):
            origins = {key: place.origin(key) for key in document.marks}
            _runtime_env(found, JsonText(document.data, origins), source, declared)
        elif isinstance(document.data.get("services"), dict):
            _services(found, place, declared)
        elif "apiVersion" in document.data and "kind" in document.data:
            _kubernetes(found, place, declared)
        else:
            continue
        seen = True
    return found if seen or found.diagnostics else None


def _is_runtime_env(data: Mapping[str, Any]) -> bool:
    """True for an object with a field that only a runtime environment has, and few others."""
    known = set(runtime_env_keys())
    return bool(data) and ("env_vars" in data or set(data) <= known - {"config"})


def _documents(text: str, source: Source, found: FileJobs) -> Iterator[Document]:
    """The documents of a file, each at its place."""
    start = 0
    ends = [each.start() for each in _SEPARATOR.finditer(text)] + [len(text)]
    for end in ends:
        body = text[start:end].removeprefix("---")
        if body.strip():
            lines = text.count("\n", 0, start)
            try:
                yield parse_document("\n" * lines + body, Path(source.file), source.file)
            except Unreadable as error:
                found.diagnostics.append(error.diagnostic)
        start = end


class _Place(NamedTuple):
    """A document and the file that it is in."""

    document: Document
    source: Source

    def origin(self, key: str) -> Origin:
        """Where a dotted key stands, or the closest one above it."""
        while key and key not in self.document.marks:
            key = key.rpartition(".")[0]
        return replace(self.document.origin(key), layer="env")

    def text(self, value: Any, key: str) -> Text:
        """A value as a word; a reference in it is not known."""
        origin = self.origin(key)
        shown = self.document.texts.get(key, str(value))
        where = _Fixed(origin)
        return Text((Piece(shown, where, 0, known="$" not in shown, exact=False),))


class _Fixed(Source):
    """A place in a file whose text is not at hand letter by letter."""

    __slots__ = ("_origin",)

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin.file, b"")
        self._origin = origin

    def origin(self, offset: int) -> Origin:
        """The place, whatever the offset."""
        return self._origin


def _runtime_env(found: FileJobs, read: JsonText, source: Source, declared: Declared) -> None:
    env = JobEnv()
    runtime_env(env, read, literal("", source), source.file)
    _environment(found, env, declared, "ray runtime_env")


def _environment(found: FileJobs, env: JobEnv, declared: Declared, name: str) -> None:
    """An environment by itself, as a plan that has nothing else."""
    sections: dict[str, dict[str, Any]] = {"env": dict(env.scopes)}
    origins = dict(env.origins)
    for field_name, (value, origin) in env.launch.items():
        sections.setdefault("launch", {})[field_name] = value
        origins[f"launch.{field_name}"] = origin
    plan = declared.into(plan_of(sections).model_copy(update={"origins": origins}))
    framework = plan.software.framework
    candidates = (framework,) if framework is not None else ()
    command = Command((literal(name),))
    found.jobs.append(
        ImportedJob(
            plan, candidates, (), tuple(env.diagnostics), tuple(env.leftovers), command, ("launch",)
        )
    )


# docker compose -----------------------------------------------------------------------------------
def _services(found: FileJobs, place: _Place, declared: Declared) -> None:
    for name, service in place.document.data["services"].items():
        if not isinstance(service, dict):
            continue
        key = f"services.{name}"
        env = JobEnv()
        variables = _compose_env(service.get("environment"), place, f"{key}.environment", env)
        entry = _words(service.get("entrypoint"), place, f"{key}.entrypoint")
        words = [*entry, *_words(service.get("command"), place, f"{key}.command")]
        if words and words[0].shown.startswith("-") and "vllm" in str(service.get("image", "")):
            words = [*_SERVE, *words]
        _start(found, words, variables, env, declared, key)


_SERVE = tuple(literal(word) for word in ("vllm", "serve"))
"""The entry point of vLLM's images."""


def _compose_env(values: Any, place: _Place, key: str, env: JobEnv) -> dict[str, Text]:
    """``environment`` as a mapping, or as a list of ``NAME=value``."""
    found: dict[str, Text] = {}
    if isinstance(values, dict):
        for name, value in values.items():
            where = f"{key}.{name}"
            if isinstance(value, bool):
                env.diagnostics.append(not_a_text(name, value, place.origin(where), key, _COMPOSE))
            elif value is not None and not isinstance(value, (dict, list)):
                found[str(name)] = place.text(value, where)
    elif isinstance(values, list):
        for index, item in enumerate(values):
            name, equals, value = str(item).partition("=")
            if equals:
                found[name] = place.text(value, f"{key}.{index}")
    return found


def _words(value: Any, place: _Place, key: str) -> list[Text]:
    """A command as a list, or as a line that is split at its blanks."""
    items = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return [place.text(item, key) for item in items]


# Kubernetes ---------------------------------------------------------------------------------------
def _kubernetes(found: FileJobs, place: _Place, declared: Declared) -> None:
    for key, container in _containers(place.document.data, ""):
        env = JobEnv()
        variables = _kubernetes_env(container.get("env"), place, f"{key}.env", env)
        words = [
            *_words(container.get("command"), place, f"{key}.command"),
            *_words(container.get("args"), place, f"{key}.args"),
        ]
        _start(found, words, variables, env, declared, key)


def _containers(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every container of every pod template in an object, wherever its kind keeps it."""
    if isinstance(node, dict):
        for name, value in node.items():
            inner = f"{path}.{name}" if path else str(name)
            if name in {"containers", "initContainers"} and isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, dict):
                        yield f"{inner}.{index}", item
            else:
                yield from _containers(value, inner)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _containers(item, f"{path}.{index}")


def _kubernetes_env(values: Any, place: _Place, key: str, env: JobEnv) -> dict[str, Text]:
    """``env`` as a list of ``{name, value}``; a value from elsewhere is not known."""
    found: dict[str, Text] = {}
    for index, item in enumerate(values if isinstance(values, list) else ()):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        where, name = f"{key}.{index}.value", item["name"]
        if "valueFrom" in item:
            found[name] = place.text(f"${{{name}}}", f"{key}.{index}.valueFrom")
        elif isinstance(item.get("value"), str):
            found[name] = place.text(item["value"], where)
        elif item.get("value") is not None:
            env.diagnostics.append(
                not_a_text(name, item["value"], place.origin(where), key, _KUBERNETES)
            )
    return found


# Both ---------------------------------------------------------------------------------------------
def _start(
    found: FileJobs,
    words: Sequence[Text],
    variables: Mapping[str, Text],
    env: JobEnv,
    declared: Declared,
    key: str,
) -> None:
    """A container: its launch if it is one, else its environment alone."""
    jobs = []
    for command in _commands(words, variables):
        job = job_of(command, declared)
        if job is not None:
            diagnostics = (*env.diagnostics, *job.diagnostics)
            jobs.append(replace(job, diagnostics=diagnostics))
    found.jobs += jobs
    if not jobs and (variables or env.diagnostics):
        env.add_all("all", variables)
        _environment(found, env, declared, key)


def _commands(words: Sequence[Text], variables: Mapping[str, Text]) -> Iterator[Command]:
    """The container's command; the text of ``bash -c`` is a script."""
    shown = [word.shown for word in words]
    shell = next((at for at, word in enumerate(shown[:-1]) if word in _SHELLS), None)
    if shell is None or not re.fullmatch(r"-\w*c", shown[shell + 1]) or len(words) < shell + 3:
        if words:
            yield Command(tuple(words), variables, origin=words[0].origin)
        return
    from precision_plan.importers.shell.reader import read_script  # only scripts need the grammar

    text = words[shell + 2]
    script = _Script(shown[shell + 2], text.origin)
    for command in read_script(script).commands:
        yield replace(command, env={**variables, **command.env})


class _Script(Source):
    """A script inside of a YAML value; its lines follow the key's if it has several."""

    __slots__ = ("_origin",)

    def __init__(self, text: str, origin: Origin) -> None:
        super().__init__(origin.file, text.encode())
        self._origin = origin

    def origin(self, offset: int) -> Origin:
        """Line of a byte of the script, counted from that of the key."""
        lines = self.data.count(b"\n", 0, offset) + 1
        if b"\n" not in self.data.strip():
            return self._origin
        return Origin(self._origin.file, self._origin.line + lines, 0, self._origin.layer)
