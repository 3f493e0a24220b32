"""Versions, ranges and GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.facts.gpus import gpus, parse_capability
from precision_plan.facts.versions import EVERY_VERSION, UnknownVersion, VersionRange, version

releases = st.lists(st.integers(0, 40), min_size=2, max_size=3).map(
    lambda parts: ".".join(map(str, parts))
)


@given(releases)
def test_a_bound_is_inside(text: str) -> None:
    assert text in VersionRange(text, None)
    assert text in VersionRange(None, text)
    assert text in VersionRange(text, text)
    assert text in EVERY_VERSION


@given(releases, releases)
def test_two_ranges_that_meet_leave_no_gap(low: str, text: str) -> None:
    inside = text in VersionRange(low, None)
    assert inside == (version(text) >= version(low))


@pytest.mark.parametrize(
    ("since", "until", "text", "inside"),
    [
        ("0.16.1", "0.16.1", "0.16.1.post1", True),
        (None, "0.16", "0.16.9", True),
        (None, "0.16", "0.17.0", False),
        ("2.8", None, "2.8.0", True),
        ("2.8", None, "2.7.9", False),
        ("HEAD", None, "0.19.0", False),
        ("HEAD", None, "HEAD-2026-08-22", True),
        (None, "0.19.0", "HEAD", False),
        ("2.2.0.dev0", None, "2.2.0.dev0+abc", True),
    ],
)
def test_ranges(since: str | None, until: str | None, text: str, inside: bool) -> None:
    assert (text in VersionRange(since, until)) is inside


def test_a_text_that_is_no_version() -> None:
    with pytest.raises(UnknownVersion, match=r"0\.16\.1"):
        version("latest")


@pytest.mark.parametrize(
    ("name", "compute_capability", "encoding"),
    [
        ("a100", (8, 0), "none"),
        ("l40s", (8, 9), "ocp"),
        ("h100", (9, 0), "ocp"),
        ("h200", (9, 0), "ocp"),
        ("b200", (10, 0), "ocp"),
        ("gb300", (10, 3), "ocp"),
        ("rtx5090", (12, 0), "ocp"),
        ("mi300x", None, "fnuz"),
        ("mi355x", None, "ocp"),
    ],
)
def test_gpus(name: str, compute_capability: tuple[int, int] | None, encoding: str) -> None:
    gpu = gpus()[name]
    assert (gpu.compute_capability, gpu.fp8_encoding) == (compute_capability, encoding)
    assert (gpu.compute_capability is None) == (gpu.platform == "rocm")


def test_capability_text() -> None:
    assert parse_capability("10.3") == (10, 3)
    assert gpus()["gb300"].capability_text == "10.3"
    assert gpus()["mi300x"].capability_text == "gfx942"
