"""What a rule is, and what it may look at."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from precision_plan.facts.megatron import flags_by_field, megatron_flags
from precision_plan.facts.versions import VersionRange, is_version, version
from precision_plan.plan import (
    Because,
    CheckpointFiles,
    Effective,
    Fix,
    Origin,
    PrecisionPlan,
    Severity,
    Stage,
    Target,
    effective,
)
from precision_plan.plan.base import NotKnown, Section
from precision_plan.plan.environment import declared_env, train_env
from precision_plan.plan.layer_map import LayerMap, layer_map
from precision_plan.plan.unknown import look_up

if TYPE_CHECKING:
    from precision_plan.plan.engine import Engine
    from precision_plan.rules.checkpoint_table import CheckpointLayers
    from precision_plan.rules.sharding_arithmetic import Cut


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule returns; the engine adds identity, severity and positions.

    ``field`` is the plan field at fault, ``because`` the premises (fields and texts), ``fix`` the
    ways out in order of preference. ``resolved`` is set by rules about silent overrides, and
    ``stage`` by the few rules whose subject one version refuses and another lets through.
    ``origin`` is set where no plan field but a file is at fault (a shard, a key of config.json).
    """

    message: str
    field: str | None = None
    because: tuple[Because, ...] = ()
    fix: tuple[Fix, ...] = ()
    resolved: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stage: Stage | None = None
    origin: Origin | None = None


Found = Finding | Iterable[Finding] | None


_SCOPES = frozenset({"all", "driver", "train_actor", "rollout_engine", "vllm_worker"})


@lru_cache(maxsize=1)
def _known_dests() -> frozenset[str]:
    changed = (
        delta["dest"] for flag in megatron_flags() for _, delta in flag.changes if "dest" in delta
    )
    return frozenset({flag.dest for flag in megatron_flags()}.union(changed))


@lru_cache(maxsize=512)
def _since(found: str, least: str) -> bool:
    return version(found) >= version(least)


class Arguments:
    """Megatron's arguments by dest. One that does not exist at the version at hand reads ``None``.

    Raises:
        AttributeError: for a name that is no dest of any version.
        NotKnown: for an argument whose value is not known.
    """

    __slots__ = ("__dict__", "_unknown")

    def __init__(self, values: SimpleNamespace) -> None:
        self.__dict__ = values.__dict__
        self._unknown: Mapping[str, str] = getattr(values, "unknown", {})

    def __getattr__(self, name: str) -> Any:
        if name in self._unknown:
            raise NotKnown(self._unknown[name])
        if name in _known_dests():
            return None
        raise AttributeError(name)


def _with_known_versions(target: Target) -> Target:
    """The target without version texts that are no versions; a rule reports those."""
    known = tuple(pair for pair in target.versions if is_version(pair[1]))
    if len(known) == len(target.versions):
        return target
    return dataclasses.replace(target, versions=known)


class Context:
    """Everything that a rule may look at; built once per plan.

    ``plan`` is what was written, ``parsed`` Megatron's arguments with defaults filled in, ``args``
    the same after silent overrides, ``given`` the dests that were written (dest -> plan field).
    ``checkpoint`` is what lies in the rollout checkpoint's folder, if somebody looked.
    """

    def __init__(self, plan: PrecisionPlan, checkpoint: CheckpointFiles | None = None) -> None:
        self.plan = plan
        self.checkpoint = checkpoint
        self.target = _with_known_versions(Target.of(plan))
        resolved: Effective = effective(plan, self.target)
        self.effective = resolved
        self.parsed = Arguments(resolved.parsed)
        self.args = Arguments(resolved.args)
        self.given = resolved.given

    @cached_property
    def train_env(self) -> Mapping[str, tuple[str, str]]:
        """``{variable: (value, plan field)}`` of the train actor."""
        return look_up(train_env(self.plan), "env.train_actor")

    @cached_property
    def rollout_env(self) -> Mapping[str, tuple[str, str]]:
        """``{variable: (value, plan field)}`` of the rollout engine's workers."""
        return look_up(declared_env(self.plan, "vllm_worker"), "env.rollout_engine")

    @cached_property
    def engine(self) -> Engine | None:
        """What vLLM makes of the rollout; ``None`` without the model's configuration."""
        if self.checkpoint is None:
            return None
        from precision_plan.plan.engine import engine  # most plans come without a checkpoint

        return engine(self.plan, self.checkpoint, self.target)

    @cached_property
    def checkpoint_layers(self) -> CheckpointLayers | None:
        """The layers of the rollout checkpoint; ``None`` if no headers were read."""
        checkpoint = self.checkpoint
        if checkpoint is None or checkpoint.tensors is None:
            return None
        if self.plan.rollout.load_format == "dummy":
            return None
        from precision_plan.rules.checkpoint_table import CheckpointLayers
        from precision_plan.rules.formats import SGLANG_FRAMEWORKS

        sglang = self.target.framework in SGLANG_FRAMEWORKS
        return CheckpointLayers(checkpoint, "sglang" if sglang else "vllm")

    @cached_property
    def checkpoint_cuts(self) -> tuple[Cut, ...]:
        """Where vLLM cuts the rollout checkpoint's layers over ranks, by their headers."""
        from precision_plan.rules.formats import SGLANG_FRAMEWORKS

        layers = self.checkpoint_layers
        if layers is None or self.target.framework in SGLANG_FRAMEWORKS:
            return ()
        from precision_plan.rules.sharding_arithmetic import Engine, cuts_of

        later = self.at_least("vllm", "0.33")
        pads = self.plan.rollout.moe_backend not in {None, "auto"}
        return cuts_of(layers, Engine(later is not False, pads, later is not False))

    @cached_property
    def layers(self) -> LayerMap | None:
        """The format of every module of every layer; ``None`` if the framework only serves."""
        return layer_map(self.plan, self.target, self.effective)

    @property
    def env_known(self) -> bool:
        """True if the plan says anything, be it "nothing", of the environment of the processes."""
        env = self.plan.env.__dict__
        said = any(env.get(scope) is not None for scope in ("all", "train_actor", "driver"))
        return said and not self.env_open

    @property
    def env_open(self) -> bool:
        """True if processes may have variables that the plan does not know of."""
        return not self.plan.env.__dict__.keys() >= _SCOPES

    @property
    def trains(self) -> bool:
        """False if the declared framework only serves."""
        return self.target.framework != "vllm"

    def is_set(self, name: str) -> bool:
        """True if a layer set the plan field ``section.name``."""
        return self.plan.get(name) is not None

    def at_least(self, package: str, least: str) -> bool | None:
        """Compare a declared package version; ``None`` if it is not declared."""
        found = self.target.package(package)
        return None if found is None else _since(found, least)

    def core_since(self, least: str) -> bool:
        """True if the Megatron version whose arguments are read is ``least`` or later."""
        return _since(self.effective.megatron_core, least)

    @property
    def fp4_param_gather(self) -> bool:
        """``--fp4-param-gather`` after overrides (its dest was renamed in 0.17.1)."""
        return bool(self.args.fp4_param_gather or self.args.fp4_param)

    def extra(self, dest: str) -> Any:
        """Value of a Megatron flag that is no plan field but stands in ``launch.extra_args``."""
        return self._extra.get(dest)

    def extra_field(self, dest: str) -> str:
        """The plan field of such a flag, in the spelling that the plan has for it."""
        for name in self.plan.launch.extra_args or ():
            if name.lstrip("-").replace("-", "_") == dest:
                return f"launch.extra_args.{name}"
        return f"launch.extra_args.{dest.replace('_', '-')}"

    @cached_property
    def _extra(self) -> Mapping[str, Any]:
        given = self.plan.launch.extra_args
        if not given:
            return {}
        named = {name.lstrip("-").replace("-", "_"): value for name, value in given.items()}
        return look_up(named, "launch.extra_args")

    def env(self, variable: str) -> str | None:
        """Value of an environment variable of the train actor; ``None`` if the plan has none."""
        found = self.train_env.get(variable)
        return None if found is None else found[0]

    def premise(self, name: str, text: str | None = None) -> Because:
        """A premise about a plan field (``hardware.gpu = h100``); the engine adds its position.

        A field that no layer sets is shown with Megatron's default, and said to be one.
        """
        return Because(text or self.shown(name), field=name)

    def shown(self, name: str) -> str:
        """``section.name = value`` as it stands in the plan or by Megatron's default."""
        try:
            value = self.plan.get(name)
        except NotKnown:
            return f"{name} is not known"
        if isinstance(value, (Mapping, Section)):
            return name
        if value is not None:
            return f"{name} = {shown(value)}"
        flag = flags_by_field().get(name)
        default = None if flag is None else vars(self.parsed).get(flag.dest)
        if default is None or default == []:
            return f"{name} is not set"
        return f"{name} = {shown(default)} (Megatron's default)"

    def found(
        self,
        message: str,
        field: str,
        *premises: str | Because,
        fix: tuple[Fix, ...] = (),
        resolved: Mapping[str, Any] | None = None,
        stage: Stage | None = None,
    ) -> Finding:
        """A finding about ``field`` that rests on ``premises`` (plan fields or ready premises)."""
        because = tuple(
            self.premise(premise) if isinstance(premise, str) else premise for premise in premises
        )
        return Finding(message, field, because, fix, resolved or {}, stage)


def shown(value: Any) -> str:
    """A value as YAML would show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return "null" if value is None else str(value)


def set_to(*pairs: tuple[str, Any], also: str = "", safe: bool = False) -> Fix:
    """A fix that sets plan fields (``training.fp8_recipe: blockwise``): ``safe`` or suggested."""
    text = " and ".join(
        f"remove {name}" if value is None else f"{name}: {shown(value)}" for name, value in pairs
    )
    return Fix(text + also, dict(pairs), "safe" if safe else "suggested")


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule holds.

    ``frameworks`` empty means all. ``versions`` maps a package to its range. ``needs`` lists what
    must be known before the rule can speak: ``gpu`` (or compute capability), ``env`` (the plan
    says what the environment is) or a package name; if it is unknown, the rule is skipped and
    reported as unchecked. ``hardware`` is text for the page.
    """

    frameworks: tuple[str, ...] = ()
    versions: Mapping[str, VersionRange] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()
    hardware: str = "any"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: identity, scope, sources and a pure check.

    The check's docstring is the page: first line the summary, then the sections ``Why``, ``Bad``
    and ``Good``. ``fixable``: the first fix of a finding may be safe, so that ``lint --fix``
    applies it.
    """

    id: str
    slug: str
    severity: Severity
    stage: Stage
    source: tuple[str, ...]
    check: Callable[[Context], Found]
    scope: Scope = Scope()
    since: str = "0.1.0"
    experimental: bool = False
    fixable: bool = False

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.partition("\n")[0].rstrip(".")

    @property
    def page(self) -> str:
        """The page text, dedented."""
        return inspect.cleandoc(self.check.__doc__ or "")


def rule(
    id: str,
    slug: str,
    severity: Severity,
    *,
    stage: Stage,
    source: tuple[str, ...],
    frameworks: tuple[str, ...] = (),
    versions: Mapping[str, VersionRange] | None = None,
    needs: tuple[str, ...] = (),
    hardware: str = "any",
    since: str = "0.1.0",
    experimental: bool = False,
    fixable: bool = False,
) -> Callable[[Callable[[Context], Found]], Rule]:
    """Turn a check into a :class:`Rule`. It registers nothing: the registry is an explicit dict."""

    def wrap(check: Callable[[Context], Found]) -> Rule:
        scope = Scope(frameworks, versions or {}, needs, hardware)
        return Rule(id, slug, severity, stage, source, check, scope, since, experimental, fixable)

    return wrap
