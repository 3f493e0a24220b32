"""The typed plan: what a recipe means, independent of who wrote it where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from precision_plan.plan.base import Section
from precision_plan.plan.origin import UNKNOWN, Origin
from precision_plan.plan.sections import Hardware, Model, Parallel, RecipeInfo, Software
from precision_plan.plan.serving import Checkpoint, Env, Inference, Launch, Rollout, WeightSync
from precision_plan.plan.training import OptimizerSection, Qat, Training

SCHEMA_VERSION = "1"
"""Version of the plan's JSON; raised when a field is renamed or changes its meaning."""


class PrecisionPlan(Section):
    """Every precision decision of one run, frozen.

    A field that no layer set is ``None`` (*not set*); ``origins`` keeps, for each field that is
    set, the file, line, column and layer that set it.
    """

    recipe: RecipeInfo = Field(default_factory=RecipeInfo.model_construct)
    model: Model = Field(default_factory=Model.model_construct)
    hardware: Hardware = Field(default_factory=Hardware.model_construct)
    software: Software = Field(default_factory=Software.model_construct)
    parallel: Parallel = Field(default_factory=Parallel.model_construct)
    training: Training = Field(default_factory=Training.model_construct)
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection.model_construct)
    qat: Qat = Field(default_factory=Qat.model_construct)
    rollout: Rollout = Field(default_factory=Rollout.model_construct)
    inference: Inference = Field(default_factory=Inference.model_construct)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint.model_construct)
    weight_sync: WeightSync = Field(default_factory=WeightSync.model_construct)
    env: Env = Field(default_factory=Env.model_construct)
    launch: Launch = Field(default_factory=Launch.model_construct)
    origins: Mapping[str, Origin] = Field(default_factory=dict, repr=False)

    def get(self, field: str) -> Any:
        """Value of ``section.name`` (or a deeper dotted path); ``None`` if it is not set.

        Raises:
            KeyError: if the plan has no such field.
        """
        node: Any = self
        for part in field.split("."):
            if node is None:
                return None
            if isinstance(node, Section):
                if part not in type(node).model_fields:
                    raise KeyError(field)
                node = getattr(node, part)
            elif isinstance(node, Mapping):
                node = node.get(part)
            else:
                raise KeyError(field)
        return node

    def origin(self, field: str) -> Origin:
        """Position of ``field``, or of the closest enclosing key that has one."""
        while field:
            found = self.origins.get(field)
            if found is not None:
                return found
            field = field.rpartition(".")[0]
        return UNKNOWN

    def set_fields(self) -> Iterator[tuple[str, Any]]:
        """Yield ``(dotted field, value)`` of every leaf that is set, in declaration order."""
        for name, section in self.__dict__.items():
            if isinstance(section, Section):
                yield from _leaves(name, section)

    def settings(self) -> dict[str, Any]:
        """The plan as plain JSON data: set fields only, without ``origins``."""
        return {
            name: section
            for name, section in self.model_dump(
                mode="json", exclude={"origins"}, exclude_none=True
            ).items()
            if section
        }

    def unknown_fields(self) -> Iterator[str]:
        """Yield the dotted fields that are set to something that is not known."""
        for name, section in self.__dict__.items():
            if isinstance(section, Section):
                yield from (f"{name}.{field}" for field in section.unknown())

    def canonical(self) -> dict[str, Any]:
        """The settings in a form that keeps what decides when keys are sorted.

        Matchers of modules are tried in order, so that they become a list.
        """
        settings = self.settings()
        modules = settings.get("training", {}).get("te_precision_config", {})
        if "matchers" in modules:
            modules["matchers"] = [list(each) for each in modules["matchers"].items()]
        return settings

    def fingerprint(self) -> str:
        """SHA-256 over the canonical settings; the recipe's title does not count.

        Equal plans give equal text on every machine and for every order of keys, except matchers
        of modules, whose order decides. A secret counts by its name: a token that is renewed makes
        no other plan, and the sum tells nothing about the token.
        """
        from precision_plan.plan.mask import Mask  # which knows the plan

        settings = self.canonical()
        settings.pop("recipe", None)
        settings = Mask.of(self).data(settings)
        content: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "plan": settings}
        if unknown := list(self.unknown_fields()):
            content["unknown"] = unknown
        text = json.dumps(
            content,
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
        )
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def _leaves(prefix: str, section: Section) -> Iterator[tuple[str, Any]]:
    for name, value in section.set_items():
        if isinstance(value, Section):
            yield from _leaves(f"{prefix}.{name}", value)
        else:
            yield f"{prefix}.{name}", value


SECTIONS: tuple[str, ...] = tuple(
    name for name in PrecisionPlan.model_fields if name not in {"recipe", "origins"}
)
"""Names of the sections that a recipe may set, besides ``recipe`` itself."""
