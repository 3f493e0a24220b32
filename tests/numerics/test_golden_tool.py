"""benchmarks/golden.py on a small folder of vectors written here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from precision_plan.numerics._common import to_e4m3

ROOT = Path(__file__).parents[2]


def golden(folder: Path) -> tuple[int, str]:
    """Exit code and output of the check; the folder's ``manifest.yaml`` must exist."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "golden.py", folder, "--verbose"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """amax 448 in a block: scale 1, so a code is the value itself."""
    x = torch.tensor([[448.0, 1.0, -3.0, *[0.0] * 29]])
    tensors = {
        "input": x,
        "floor.q": to_e4m3(x),
        "floor.scale": torch.tensor([[127]], dtype=torch.uint8),
    }
    save_file(tensors, tmp_path / "one.safetensors")
    write(tmp_path, {"floor": {}, "ceil": {"bit_identical_to": "floor"}})
    return tmp_path


def write(folder: Path, variants: dict[str, dict[str, str]], normative: bool = True) -> None:
    case = {"file": "one.safetensors", "format": "mxfp8", "case": "one", "variants": variants}
    text = yaml.safe_dump({"cases": [{**case, "normative": normative}]}, sort_keys=False)
    (folder / "manifest.yaml").write_text(text, encoding="utf-8")


def test_vectors_that_agree(folder: Path) -> None:
    code, text = golden(folder)
    assert code == 0 and "2 of 2 normative rows match byte for byte" in text
    assert text.splitlines()[0].split() == ["mxfp8", "floor", "1", "/", "1"]


def test_a_difference_fails_and_is_told(folder: Path) -> None:
    write(folder, {"floor": {}, "ct": {"bit_identical_to": "floor"}})
    code, text = golden(folder)
    assert code == 1 and "1 of 2 normative rows match" in text
    assert "one.safetensors ct: q differs in 3 of 32 elements: 224.0 instead of 448.0" in text
    write(folder, {"ct": {"bit_identical_to": "floor"}, "floor": {}}, normative=False)
    assert golden(folder)[0] == 0


def test_a_variant_without_a_function_fails(folder: Path) -> None:
    write(folder, {"floor": {}, "unheard_of": {"bit_identical_to": "floor"}})
    code, text = golden(folder)
    assert code == 1 and "unheard_of" in text and "no function" in text


def test_a_folder_that_cannot_be_read(folder: Path) -> None:
    (folder / "one.safetensors").write_bytes(b"short")
    code, text = golden(folder)
    assert code == 2 and "Traceback" not in text
    (folder / "manifest.yaml").unlink()
    assert golden(folder)[0] == 2
