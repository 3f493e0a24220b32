"""Looks at what one recipe names on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from precision_plan.api.checking import Checked, Nowhere, check, check_profile
from precision_plan.compose import Composer
from precision_plan.plan.compiled import Preflight
from precision_plan.rules.base import Context
from precision_plan.rules.profiles import Profile

if TYPE_CHECKING:
    from precision_plan.rules.checkpoint_sharding import LegalSizes

_UNSEEN = ("hardware", "software", "Ray cluster", "checkpoint.load", "checkpoint.ref_load")
"""What a preflight does not look at yet."""


def preflight(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    conf_dir: str | Path | None = None,
    search_paths: Sequence[str | Path] = (),
    profile: Profile = "ci",
) -> Preflight:
    """Look at the checkpoint folder that one recipe names, and say what is not looked at.

    The arguments are those of :func:`compile`. Findings that do not rest on the folder are left
    to :func:`lint`.

    Raises:
        ValueError: if there is no such profile.
    """
    started = perf_counter()
    check_profile(profile)
    composition = Composer(conf_dir, search_paths).compose(recipe, overrides)
    checked = check(composition, profile)
    found = checked.diagnostics
    if not checked.broken:
        without = check(composition, profile, folders=Nowhere()).diagnostics
        found = tuple(each for each in found if each not in without)
    sizes = _sizes(checked)
    return Preflight(
        name=composition.name,
        diagnostics=found,
        seen={"checkpoint.hf_checkpoint": _seen(checked)},
        unseen=_UNSEEN,
        rules_checked=checked.rules,
        unchecked=checked.unchecked,
        seconds=perf_counter() - started,
        legal_tensor_parallel_sizes=sizes.tensor if sizes else None,
        legal_expert_parallel_sizes=sizes.expert if sizes else None,
    )


def _sizes(checked: Checked) -> LegalSizes | None:
    if checked.broken or checked.folder is None:
        return None
    from precision_plan.rules.checkpoint_sharding import legal_sizes  # with every rule

    return legal_sizes(Context(checked.plan, checked.folder))


def _seen(checked: Checked) -> str:
    named, files = checked.plan.checkpoint.hf_checkpoint, checked.folder
    if files is None:
        return f"unknown: {named} is no folder here" if named else "the recipe names none"
    shards = len(files.shards)
    tensors = "not read" if files.tensors is None else f"{len(files.tensors):,}"
    return (
        f"{files.folder}: headers of {shards} shard{'' if shards == 1 else 's'}, tensors: {tensors}"
    )
