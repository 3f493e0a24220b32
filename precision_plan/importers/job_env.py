"""The environment of a launch's processes: which layer sets a variable, and whom it reaches.

A process of a Ray job sees what the shell of ``ray start`` exported, then the job's
``runtime_env``; the shell that submits the job passes nothing on. A train actor sees
``--train-env-vars`` on top. A program that is started in the shell sees the shell's exports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_plan.compose.suggest import closest
from precision_plan.facts.launches import runtime_env_keys
from precision_plan.importers.jobs import NOTHING, Leftover
from precision_plan.importers.json_words import Fault, JsonText, read_json
from precision_plan.importers.launch_words import Launch
from precision_plan.importers.texts import Text
from precision_plan.plan import UNKNOWN, Because, Diagnostic, Fix, Origin
from precision_plan.plan.codes import compose_diagnostic

_RUNTIME_ENV = "--runtime-env-json"
_TRAIN_ENV = "--train-env-vars"
_STRINGS = "ray@2.60.0:_private/runtime_env/validation.py:412-452"


@dataclass(slots=True)
class JobEnv:
    """Variables by scope of the plan's ``env`` section, with the position of each.

    ``open``: there may be more, which a runtime environment sets that could not be read.
    """

    scopes: dict[str, dict[str, str]] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    launch: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    open: bool = False

    def add(self, scope: str, name: str, value: str, origin: Origin) -> None:
        """One variable; a later layer replaces an earlier one."""
        self.scopes.setdefault(scope, {})[name] = value
        self.origins[f"env.{scope}.{name}"] = origin

    def add_all(self, scope: str, variables: Mapping[str, Text]) -> None:
        """Variables of a shell."""
        for name, text in variables.items():
            self.add(scope, name, reference_text(text), text.origin)


def reference_text(text: Text) -> str:
    """The text; if it is not known, one that says so (see :mod:`precision_plan.plan.unknown`)."""
    shown = text.shown
    return shown if text.known or "$" in shown else f"$({shown})"


def job_env(
    launch: Launch, ray_env: Mapping[str, Text] | None, *, is_ray: bool, train_env: Text | None
) -> JobEnv:
    """Everything that is said of the environment of the processes of one launch.

    ``is_ray``: the program runs its work in Ray actors.
    """
    found = JobEnv()
    if launch.submit is not None:
        found.add_all("all", ray_env or NOTHING)
        _job(found, launch.submit.options)
        here = _differing(launch.env, ray_env or NOTHING)
        found.add_all("shell", here)
    elif launch.program == "vllm":
        found.add_all("vllm_worker", launch.env)
    elif is_ray and ray_env is not None:
        found.add_all("all", ray_env)
        here = _differing(launch.env, ray_env)
        if here:
            found.add_all("driver", here)
    elif launch.env:
        found.add_all("all", launch.env)
    if train_env is not None:
        _train(found, train_env)
    return found


def _differing(here: Mapping[str, Text], there: Mapping[str, Text]) -> dict[str, Text]:
    """Variables of one shell that another does not have with the same text."""
    return {
        name: text
        for name, text in here.items()
        if name not in there or there[name].shown != text.shown
    }


def _job(found: JobEnv, options: Mapping[str, Text]) -> None:
    """The job's own ``runtime_env``, and where it is submitted."""
    text, file = options.get(_RUNTIME_ENV), options.get("--runtime-env")
    if text is not None and file is not None:
        found.diagnostics.append(
            compose_diagnostic(
                "PP908",
                f"--runtime-env and {_RUNTIME_ENV} are both given",
                file.origin,
                because=(Because("the other one", origin=text.origin),),
                source=("ray@2.60.0:dashboard/modules/dashboard_sdk.py:58-62",),
                stage="run",
            )
        )
    if text is not None:
        runtime_env(found, read_json(text), text, _RUNTIME_ENV)
    elif file is not None:
        from precision_plan.importers.runtime_env_files import read_runtime_env_file

        read = read_runtime_env_file(file)
        if read is not None:
            runtime_env(found, read[0], file, read[1])
        else:
            found.open = True
            why = "the file of the runtime environment is not there to be read"
            found.leftovers.append(Leftover("source", file.shown, file.origin, why))
    for option, name in (("--working-dir", "working_dir"), ("--address", "ray_address")):
        value = options.get(option)
        if value is not None:
            found.launch[name] = (reference_text(value), value.origin)


def runtime_env(found: JobEnv, read: JsonText, text: Text, place: str) -> None:
    """Take over what a ``runtime_env`` says."""
    if not _readable(found, read, text, place):
        return
    for key, value in read.value.items():
        origin = read.origins.get(key, text.origin)
        if key == "env_vars":
            _variables(found, read, "env_vars", value, "all", place)
        elif key == "working_dir" and isinstance(value, str):
            found.launch["working_dir"] = (value, origin)
        elif key not in runtime_env_keys():
            _unknown_key(found, key, origin)


def _readable(found: JobEnv, read: JsonText, text: Text, place: str) -> bool:
    if read.fault is not None:
        _broken(found, place, read.fault)
    elif not isinstance(read.value, dict) and not text.known:
        found.open = True
        why = f"what it stands for is more than a value, so that {place} is not known"
        found.leftovers.append(Leftover("arguments", " ".join(text.unknown), text.origin, why))
    elif not isinstance(read.value, dict):
        _broken(found, place, Fault("it is no object", text.origin))
    else:
        for path, origin in read.repeated:
            message = f"{place} has the key {path} twice; the last one counts"
            found.diagnostics.append(
                compose_diagnostic("PP916", message, origin, field=path, stage="parse")
            )
        return True
    return False


def _broken(found: JobEnv, place: str, fault: Fault) -> None:
    found.diagnostics.append(
        compose_diagnostic(
            "PP915",
            f"{place} cannot be read: {fault.message}",
            fault.origin,
            field=place,
            stage="parse",
        )
    )


def _unknown_key(found: JobEnv, key: str, origin: Origin) -> None:
    close = closest(key, runtime_env_keys(), cutoff=0.75)
    if close is None:
        why = "Ray has no such field of a runtime environment; a plugin may"
        found.leftovers.append(Leftover("word", key, origin, why))
        return
    found.diagnostics.append(
        compose_diagnostic(
            "PP913",
            f"runtime_env has no {key}: what stands below it is not done",
            origin,
            field=key,
            fix=(Fix(f"did you mean {close}?"),),
            source=("ray@2.60.0:runtime_env/runtime_env.py:299-318",),
            stage="run",
        )
    )


def _train(found: JobEnv, text: Text) -> None:
    read = read_json(text)
    if _readable(found, read, text, _TRAIN_ENV):
        _variables(found, read, "", read.value, "train_actor", _TRAIN_ENV)


def _variables(
    found: JobEnv, read: JsonText, path: str, values: Any, scope: str, place: str
) -> None:
    """The variables of one JSON object; Ray takes texts only."""
    if not isinstance(values, dict):
        if values is not None:
            origin = read.origins.get(path, UNKNOWN)
            found.diagnostics.append(not_a_text(path, values, origin, place))
        return
    found.scopes.setdefault(scope, {})
    for name, value in values.items():
        origin = read.origins.get(f"{path}.{name}" if path else name, UNKNOWN)
        if isinstance(value, str):
            found.add(scope, name, value, origin)
        else:
            field = f"env.{scope}.{name}"
            found.diagnostics.append(not_a_text(name, value, origin, place, field=field))
            if isinstance(value, (bool, int, float)):  # what is meant is clear
                found.add(scope, name, _shown(value), origin)


def _shown(value: Any) -> str:
    """A value as JSON spells it."""
    return "null" if value is None else str(value).lower() if value in (True, False) else str(value)


def not_a_text(
    name: str, value: Any, origin: Origin, place: str, source: str = _STRINGS, field: str = ""
) -> Diagnostic:
    """The finding about a variable whose value is a number, a boolean or nothing.

    To quote a whole number is safe, where ``field`` is the plan field that then holds it.
    """
    shown = _shown(value)
    kind = "an object of texts" if name == "env_vars" else "a text"
    fix: tuple[Fix, ...] = ()
    if field and type(value) is int:
        fix = (Fix(f'"{name}": "{value}"', {field: str(value)}, "safe"),)
    elif not isinstance(value, (dict, list)):
        fix = (Fix(f'"{name}": "{shown}"'),)
    return compose_diagnostic(
        "PP914",
        f"{name} is {shown}; it must be {kind}",
        origin,
        field=name,
        because=(Because(f"it stands in {place}"),),
        fix=fix,
        source=(source,),
        stage="run",
    )
