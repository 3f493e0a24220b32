"""What holds for every row of every table."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_plan.facts.versions import VersionRange, version

DATA = Path(__file__).parents[2] / "precision_plan" / "facts" / "data"
TABLES = sorted(DATA.glob("*.json"))
KEYS = {
    "env_dead_names": ("name",),
    "env_vars": ("name",),
    "env_precedence": ("role",),
    "formats": ("name",),
    "framework_behaviour": ("framework",),
    "gpus": ("name",),
    "int4_group_sizes": ("model",),
    "te_fields": ("recipe", "name"),
    "te_gemm_multiples": ("format",),
    "te_recipes": ("name",),
    "vllm_architectures": ("prefix",),
    "vllm_engine_args": ("field",),
    "vllm_kv_dtypes": ("name",),
    "vllm_methods": ("name",),
    "vllm_quant_names": ("name",),
}
"""Columns whose values name one row."""


def rows(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))


def ranges(row: dict[str, Any]) -> Iterator[tuple[str | None, str | None]]:
    """Every version range that a row holds, nested ones too."""
    if "since" in row or "until" in row:
        yield row.get("since"), row.get("until")
    for value in row.values():
        if isinstance(value, dict):
            yield from ranges(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from ranges(item)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_one_row_a_line(path: Path) -> None:
    first, *lines, last = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert (first, last) == ("[", "]")
    assert [json.loads(line.rstrip(",")) for line in lines] == rows(path)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_has_a_source(path: Path) -> None:
    for row in rows(path):
        sources = row["source"] if isinstance(row["source"], list) else [row["source"]]
        assert sources or row.get("basis"), row
        assert all(re.search(r"\w", source) for source in sources), row


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_version_ranges_parse_and_are_not_empty(path: Path) -> None:
    for row in rows(path):
        for since, until in ranges(row):
            bounds = [version(text) for text in (since, until) if text is not None]
            assert bounds == sorted(bounds), row
            if since is not None:
                assert since in VersionRange(since, until), row


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_keys_are_unique(path: Path) -> None:
    columns = KEYS.get(path.stem)
    if columns is None:
        return
    seen = Counter(
        tuple(row[column] for column in columns)
        for row in rows(path)
        if path.stem != "te_fields" or "until" not in row
    )
    assert [key for key, count in seen.items() if count > 1] == []


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_sources_are_public(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(^|[\s\"(])/(work|tmp|root|home)/", text)
