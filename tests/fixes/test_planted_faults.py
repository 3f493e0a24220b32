"""A fault that is planted into a shipped recipe is taken out again, to the last byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_plan import compile
from precision_plan.api.fixing import fix
from precision_plan.compose.editing import edit

CONF = Path(__file__).parents[2] / "conf"
RECIPES = sorted((CONF / "recipes").glob("*.yaml"))
PLANTS: dict[str, tuple[str, Any]] = {
    "PP172": ("training.fp8_interval", 4),
    "PP382": ("optimizer.muon_fp32_matmul_prec", "high"),
    "PP604": ("env.all.VLLM_USE_V1", "1"),
}
COMMENT = "# precision-plan: ignore[PP101] planted\n"


def fixed(path: Path) -> tuple[bytes, list[str]]:
    fixes = fix([path], conf_dir=CONF)
    ids = [each.diagnostic.id for each in fixes.fixed]
    return fixes.changes[0].after.encode() if fixes.changes else path.read_bytes(), ids


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_planted(recipe: Path, ending: str, tmp_path: Path) -> None:
    text = recipe.read_text(encoding="utf-8").replace("\n", ending)
    path = tmp_path / recipe.name
    path.write_bytes(text.encode())
    assert fixed(path) == (text.encode(), [])
    declared = compile(path, conf_dir=CONF).plan.software
    for id, (field, value) in PLANTS.items():
        planted = edit(text, {field: value})
        assert planted != text
        path.write_bytes(planted.encode())
        after, ids = fixed(path)
        if id == "PP604" and declared.vllm is None:
            assert ids == []  # which vLLM would read the variable is not known
            continue
        assert ids == [id]
        assert after.decode() == text
    head, mark, rest = text.partition("defaults:")
    path.write_bytes(f"{head}{COMMENT.replace(chr(10), ending)}{mark}{rest}".encode())
    assert fixed(path) == (text.encode(), ["PP021"])
