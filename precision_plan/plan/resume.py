"""What a run that resumes a checkpoint loses or converts when its number formats have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precision_plan.facts.resume import ResumeEffect, resume_effects
from precision_plan.facts.versions import is_version
from precision_plan.plan.snapshot import Snapshot

_MOMENTS = ("Adam first moment", "Adam second moment")
_NO_FORMAT = frozenset({"", "none", "unknown"})


@dataclass(frozen=True, slots=True)
class Resumed:
    """One thing that the checkpoint holds, in what format then and now, and what comes of it.

    What is ``of_optimizer`` is not loaded with ``--no-load-optim``.
    """

    what: str
    before: str
    after: str
    effect: ResumeEffect

    @property
    def of_optimizer(self) -> bool:
        """True for the state of the optimizer, its loss scaler and main parameters among it."""
        return self.what in (*_MOMENTS, "main params", "loss scaler")


def resumed_from(today: Snapshot) -> str | None:
    """The checkpoint that today's plan resumes; ``None`` if it starts anew or only fine-tunes."""
    checkpoint = today.plan.get("checkpoint", {})
    loaded = checkpoint.get("load")
    return loaded if isinstance(loaded, str) and loaded and not _flag(today, "finetune") else None


def resume(locked: Snapshot, today: Snapshot) -> Iterator[Resumed]:
    """What changed formats do to the state that was saved under ``locked``."""
    before, after = _tensors(locked), _tensors(today)
    yield from _weights(before, after)
    yield from _delayed(_recipe(locked), _recipe(today), _refuses(today))
    no_optimizer = today.plan.get("checkpoint", {}).get("no_load_optim") is True
    if no_optimizer or _flag(today, "no_load_optim"):
        return
    yield from _scaler(locked, today)
    yield from _main_params(before, after)
    for name in _MOMENTS:
        if _changed(before, after, name):
            yield _resumed(name, before[name], after[name], "state-rescaled")


def _flag(snapshot: Snapshot, name: str) -> bool:
    extra = snapshot.plan.get("launch", {}).get("extra_args") or {}
    return any(key.lstrip("-").replace("-", "_") == name and extra[key] for key in extra)


def _resumed(what: str, before: str, after: str, name: str) -> Resumed:
    return Resumed(what, before, after, resume_effects()[name])


def _tensors(snapshot: Snapshot) -> Mapping[str, str]:
    found: Any = snapshot.lowered.get("tensors", {})
    return {name: str(dtype) for name, dtype in found.items()}


def _format(dtype: str) -> str:
    """``fp32`` of ``fp32 (host)``."""
    return dtype.partition(" ")[0]


def _changed(before: Mapping[str, str], after: Mapping[str, str], name: str) -> bool:
    """True if values are rounded: what is loaded as FP32 stays what was saved."""
    old, new = _format(before.get(name, "")), _format(after.get(name, ""))
    return old != new and new != "fp32" and not _NO_FORMAT & {old, new}


def _weights(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Resumed]:
    """Weights are saved in the base format, also those that were stored in FP8."""
    name = "train weights"
    if not _changed(before, after, name):
        return
    bases = {"bf16", "fp16", "fp32"}
    if _format(after[name]) not in bases:
        yield _resumed(name, before[name], after[name], "weights-requantized")
    elif _format(before[name]) in bases:
        yield _resumed(name, before[name], after[name], "weights-cast")


def _main_params(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Resumed]:
    name = "main params"
    old, new = before.get(name, ""), after.get(name, "")
    if _NO_FORMAT & {_format(old), _format(new)}:
        return
    if ("remainder" in old) != ("remainder" in new):
        yield _resumed(name, old, new, "remainder")
    elif _changed(before, after, name):
        yield _resumed(name, old, new, "state-rescaled")


def _scaler(locked: Snapshot, today: Snapshot) -> Iterator[Resumed]:
    """FP16 trains with a loss scaler, the other formats without."""
    old, new = (each.plan.get("training", {}).get("fp16") is True for each in (locked, today))
    if old != new:
        words = {True: "fp16", False: "no scaler"}
        effect = "scaler-missing" if new else "scaler-dropped"
        yield _resumed("loss scaler", words[old], words[new], effect)


def _recipe(snapshot: Snapshot) -> str | None:
    found = snapshot.lowered.get("transformer_engine", {}).get("recipe")
    return found if isinstance(found, str) else None


def _delayed(old: str | None, new: str | None, refuses: bool) -> Iterator[Resumed]:
    """Only delayed scaling keeps a state of its own."""
    delayed = "DelayedScaling"
    if (old == delayed) == (new == delayed):
        return
    before, after = old or "no recipe", new or "no recipe"
    if new == delayed:
        yield _resumed("FP8 scaling state", before, after, "delayed-without-history")
    else:
        effect = "delayed-refused" if refuses else "delayed-dropped"
        yield _resumed("FP8 scaling state", before, after, effect)


def _refuses(today: Snapshot) -> bool:
    """True if today's Transformer Engine is known not to load what delayed scaling saved."""
    effect = resume_effects()["delayed-refused"]
    release = today.versions.get("transformer_engine", {}).get("declared")
    seen = today.lowered.get("environment", {}).get("train_actor", {})
    allowed = effect.unless is not None and seen.get(effect.unless) == "1"
    known = release is not None and is_version(release) and release in effect.versions
    return known and not allowed
