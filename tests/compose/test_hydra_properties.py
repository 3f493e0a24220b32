"""Random configuration folders and overrides: the composer and ``hydra.compose`` agree on all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from precision_plan.compose.overrides import parse_overrides
from precision_plan.plan.codes import is_broken_input
from tests.compose.hydra_reference import REFUSED, by_hydra, by_us, includes_a_file_twice

SECTIONS = ("model", "training", "rollout")
GROUPS = (*SECTIONS, "rollout/cache")
CHOICES = ("a", "b", "c")
KEYS = ("x", "y", "z")

scalars = st.sampled_from([True, False, 3, -1.5, "text", "1e5", "off", None, "", "12.10", "???"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=4,
)
mappings = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)
content = st.one_of(
    st.fixed_dictionaries({}, optional={"x": scalars, "y": mappings, "z": st.lists(scalars)}),
    st.fixed_dictionaries({}, optional={"x": scalars, "y": mappings, "z": st.lists(scalars)}),
    mappings,
)
references = st.sampled_from(["${model.x}", "${.x}", "a-${training.x}-b", "${..model.y}"])
packages = st.sampled_from(
    ["", "", "", "", "@model", "@_global_", "@_here_", "@_global_.training", "@_group_"]
)
rarely = st.sampled_from([False, False, True])


@st.composite
def entries(draw: st.DrawFn, groups: tuple[str, ...]) -> Any:
    """One entry of a defaults list."""
    kind = draw(st.sampled_from(["group", "config", "list", "optional", "override"]))
    group = draw(st.sampled_from(groups))
    choice = draw(st.sampled_from([*CHOICES, None]))
    package = draw(packages)
    if kind == "override":
        return {f"override /{group.lstrip('/')}": choice}
    if kind == "config":
        return f"{group}/{choice or 'a'}{package}"
    if kind == "list":
        names = draw(st.lists(st.sampled_from(CHOICES), max_size=2, unique=True))
        return {f"{group}{package}": names}
    if kind == "optional":
        return {f"optional {group}{package}": draw(st.sampled_from(["a", "missing"]))}
    return {f"{group}{package}": choice}


@st.composite
def documents(draw: st.DrawFn, groups: tuple[str, ...], header: bool = True) -> str:
    """Text of one file: perhaps a package header, perhaps a defaults list, content."""
    data: dict[str, Any] = {}
    listed = draw(st.lists(entries(groups), max_size=2)) if groups and draw(rarely) else []
    listed.sort(key=lambda entry: "override" in str(entry))
    if listed and draw(st.booleans()):
        listed.insert(draw(st.integers(0, len(listed))), "_self_")
    if listed:
        data["defaults"] = listed
    data |= draw(content)
    if draw(rarely) and draw(rarely):
        data["w"] = draw(references)
    lines = yaml.safe_dump(data, sort_keys=False)
    package = draw(st.sampled_from(["", "", "", "# @package model\n", "# @package _global_\n"]))
    return (package if header else "") + lines


@st.composite
def folders(draw: st.DrawFn) -> dict[str, str]:
    """A configuration folder as ``{relative path: text}``. Groups include only later groups, so
    that cycles (which have a test of their own) do not hide everything else."""
    files: dict[str, str] = {}
    for index, group in enumerate(GROUPS):
        later = tuple(f"/{name}" for name in GROUPS[index + 1 :])
        for choice in CHOICES:
            files[f"{group}/{choice}.yaml"] = draw(documents(later))
    primary = [{group: draw(st.sampled_from([*CHOICES, None]))} for group in SECTIONS]
    primary.append("_self_")
    files["config.yaml"] = yaml.safe_dump({"defaults": primary, "dry_run": False})
    listed = [
        {f"override /{group}": draw(st.sampled_from(CHOICES))}
        for group in draw(st.lists(st.sampled_from(SECTIONS), unique=True))
    ]
    data: dict[str, Any] = {"defaults": listed} if listed else {}
    for section in draw(st.lists(st.sampled_from(SECTIONS), unique=True)):
        data[section] = draw(content)
    files["recipes/r.yaml"] = "# @package _global_\n" + (yaml.safe_dump(data) if data else "{}\n")
    return files


overrides = st.lists(
    st.one_of(
        st.builds("{}={}".format, st.sampled_from(GROUPS), st.sampled_from(CHOICES)),
        st.builds("~{}".format, st.sampled_from(GROUPS)),
        st.builds(
            "{}{}.{}={}".format,
            st.sampled_from(["", "", "+", "++"]),
            st.sampled_from(
                ["model", "training", "rollout", "rollout.cache", "model.x", "model.y"]
            ),
            st.sampled_from(KEYS),
            st.sampled_from(["1", "true", "null", "[1,a]", "{x: 2}", "'q'", "", "1.50", "???"]),
        ),
        st.builds("~{}.{}".format, st.sampled_from(SECTIONS), st.sampled_from(KEYS)),
    ),
    max_size=3,
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking a folder takes minutes
)
@given(files=folders(), texts=overrides)
def test_any_folder_composes_as_in_hydra(files: dict[str, str], texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        conf = Path(name)
        for path, text in files.items():
            (conf / path).parent.mkdir(parents=True, exist_ok=True)
            (conf / path).write_text(text, encoding="utf-8")
        texts = ["+recipe=r", *texts]
        wanted, found = by_hydra(conf, texts), by_us(conf, texts)
        if found != wanted and found != REFUSED:
            assert includes_a_file_twice(conf, texts)
            return
    assert found == wanted or (found == REFUSED and _refused_on_purpose(wanted))


def _refused_on_purpose(data: Any) -> bool:
    """Hydra lets a section become a scalar, and writes the ``repr`` of a mapping into a text."""
    if data == REFUSED:
        return False
    sections = (data.get(name, {}) for name in ("model", "training", "rollout"))
    written = repr(data)
    return not all(isinstance(each, dict) for each in sections) or any(
        text in written for text in ("a-{", "a-[")
    )


@settings(max_examples=400, deadline=None)
@given(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "+", "++", "~"]),
        st.text("ab_.-/$0 1@", min_size=1, max_size=8),
        st.sampled_from(["=", "=", "=", ""]),
        st.text("aeE.infNuLtrue01_+-/:%*@?|,[]'\"\\$(){} =", max_size=12),
    )
)
@example("a.b=1_000")
@example("a=1__0")
@example("a=+1.5e-3")
@example("a=0x10")
@example("a=-.inf")
@example("a=NaN")
@example("a=[1,,2]")
@example("a=[,]")
@example("a='it\\'s'")
@example("~a@b=c")
@example("a/b@c.d=e")
@example("a=${b.c}")
@example("a=1.")
@example("a=.")
def test_overrides_are_read_as_hydra_reads_them(text: str) -> None:
    found, problems = parse_overrides([text])
    try:
        wanted = OverridesParser.create().parse_override(text)
    except (HydraException, ValueError):
        wanted = None
    if wanted is None or wanted.is_sweep_override():
        assert found == () and all(map(is_broken_input, problems)) and problems
        return
    assert problems == []
    (override,) = found
    assert (override.key, override.package, repr(override.value)) == (
        wanted.key_or_group,
        wanted.package,
        repr(wanted.value()),
    )
    assert override.kind == {"CHANGE": "change", "ADD": "add", "FORCE_ADD": "force_add",
                             "DEL": "delete"}[wanted.type.name]  # fmt: skip
