"""Configurations of torch's allocator, against torch itself where it is installed."""

from __future__ import annotations

import pytest

from precision_plan.facts.allocator import refused_option

TAKEN = (
    "",
    "expandable_segments:True",
    " expandable_segments : False ",
    "expandable_segments:True,",
    "max_split_size_mb:512,expandable_segments:True",
    "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8",
    "pinned_use_background_threads:True",
)
REFUSED = (
    "expandable_segments:true",
    "expandable_segments:1",
    "expandable_segments",
    "max_split_size_mb=512",
    "max_split_size_mb:all",
    "expandable_segments:True max_split_size_mb:512",
    "expandable_segments:True;max_split_size_mb:512",
    "garbage_collection_threshold:80",
    "garbage_collection_threshold:x",
    "pinned_use_background_threads:on",
)


@pytest.mark.parametrize("text", TAKEN)
def test_taken(text: str) -> None:
    assert refused_option(text) is None


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    assert refused_option(text) is not None


def test_what_is_wrong_is_said() -> None:
    assert refused_option("expandable_segments:true") == (
        "expandable_segments takes True or False, not 'true'"
    )
    assert refused_option("max_split_size_mb=512") == "max_split_size_mb=512 is no option:value"


@pytest.mark.parametrize("text", [*TAKEN, *REFUSED])
def test_torch_agrees(text: str) -> None:
    torch = pytest.importorskip("torch")
    setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if setter is None:
        pytest.skip("this torch has no allocator settings for every device")
    try:
        setter(text)
    except (RuntimeError, ValueError):
        assert text in REFUSED
    else:
        assert text in TAKEN
    finally:
        setter("")
