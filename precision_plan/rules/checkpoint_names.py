"""How each method's ignore list is compared with a layer's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from functools import cached_property
from typing import Any

from precision_plan.facts.vllm_quant import quant_methods

PARTS: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Layers that the engine makes one matrix of, by the name of that matrix."""

FUSED: Mapping[str, str] = {part: whole for whole, parts in PARTS.items() for part in parts}

# The engine maps the names of a wrapper's tensors, and the list's entries, to its own; the last
# pair holds for a language model alone whose tensors were saved under the wrapper's names.
_SPELLINGS = (
    ("model.language_model.", "language_model.model."),
    ("language_model.model.", "model.language_model."),
    ("model.language_model.", "model."),
)


class Ignored:
    """The ignore list of one ``quantization_config``, as its method reads it.

    ``entries`` are the names and patterns that count, ``key`` where they stand.
    """

    def __init__(
        self, config: Mapping[str, Any], method: str | None, wrapper: bool = False
    ) -> None:
        self.method, self.wrapper = method, wrapper
        facts = quant_methods().get(method or "")
        self.match = "none" if facts is None else facts.ignore_match
        self.key, self.entries = self._entries(config, facts.ignore_keys if facts else ())
        self.targets = _targets(config)
        self._known: dict[str, bool] = {}
        # what the list does not say of a layer, something else may
        self.certain = (
            facts is not None
            and self.match != "none"
            and "dynamic" not in config
            and not config.get("modules_in_block_to_quantize")
            and "quantized_layers" not in config
        )

    @staticmethod
    def _entries(config: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        nested = config.get("quantization")
        if isinstance(nested, Mapping):
            config, keys = nested, ("exclude_modules",)
        for key in keys:
            found = config.get(key)
            if isinstance(found, (list, tuple)) and found:
                return key, tuple(each for each in found if isinstance(each, str))
        return (keys[0] if keys else "ignore"), ()

    def holds(self, name: str) -> bool:
        """True if the list leaves the layer of this name unquantized."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = any(
                self._holds(each) for each in spellings(name, self.wrapper)
            )
        return known

    def listed(self, name: str) -> bool:
        """True if an entry itself names the layer; layers that no target covers are not listed."""
        return self.holds(name) and (self.match != "regex" or self._by_entry(name))

    def _by_entry(self, name: str) -> bool:
        names = spellings(name, self.wrapper)
        return any(each in self._exact or self._matches(each) for each in names)

    def _holds(self, name: str) -> bool:
        if self.match == "exact":
            return name in self._exact or (
                ".experts." in name and self._experts(name.partition(".experts.")[0] + ".experts")
            )
        if self.match == "regex":
            return name in self._exact or self._matches(name) or not self._targeted(name)
        if any(entry in name for entry in self.entries):
            return True
        return self.match == "wildcard" and bool(self._wildcards and self._wildcards.match(name))

    def _experts(self, prefix: str) -> bool:
        return any(prefix in entry for entry in self._exact)

    def _matches(self, name: str) -> bool:
        return any(pattern.match(name) for pattern in self._patterns)

    def _targeted(self, name: str) -> bool:
        if "Linear" in self.targets or not self.targets:
            return True
        return any(
            re.match(each[3:], name) if each[:3] == "re:" else each == name or "." not in each
            for each in self.targets
        )

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(self.entries)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        found = []
        for entry in self.entries:
            if entry[:3] == "re:":
                try:
                    found.append(re.compile(entry[3:]))
                except re.error:
                    continue
        return tuple(found)

    @cached_property
    def _wildcards(self) -> re.Pattern[str] | None:
        patterns = [translate(entry) for entry in self.entries if "*" in entry or "?" in entry]
        # vLLM makes "path*" "path" and "path.*": the same layers for names of whole modules
        return re.compile("|".join(patterns)) if patterns else None


def _targets(config: Mapping[str, Any]) -> tuple[str, ...]:
    groups = config.get("config_groups")
    found: list[str] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        targets = group.get("targets") if isinstance(group, Mapping) else None
        found += [each for each in targets or () if isinstance(each, str)]
    return tuple(found)


def spellings(name: str, wrapper: bool = False) -> tuple[str, ...]:
    """The names under which the engine knows a layer: the checkpoint's, its own, the fused one."""
    found = [name]
    for theirs, ours in _SPELLINGS[: 2 if wrapper else 3]:
        if name.startswith(theirs):
            found.append(ours + name[len(theirs) :])
    part = name.rpartition(".")[2]
    if part in FUSED:
        found += [f"{each.rpartition('.')[0]}.{FUSED[part]}" for each in tuple(found)]
    return tuple(found)
