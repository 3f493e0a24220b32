"""Reference numerics against golden vectors that other libraries made.

    python benchmarks/golden.py DIR [--format FORMAT] [--verbose]

``DIR`` holds ``manifest.yaml`` and the safetensors files that it lists. Each variant of each case
is computed from the case's input and compared byte for byte, dtype and shape included; a
``dequant`` tensor is compared too. Prints matched / total for each format and variant. Exits 1 if
a row that the manifest calls normative differs or is made by no function of ours, 2 if the folder
cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from golden_variants import VARIANTS, Case
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor


class Outcome(NamedTuple):
    """One variant of one case: ``difference`` is empty when every byte agrees."""

    format: str
    variant: str
    file: str
    normative: bool
    covered: bool
    difference: str


def expected_tensors(case: Mapping[str, Any], variant: str, tensors: Mapping[str, Tensor]) -> dict:
    """The artifacts of a variant; those of the variant that it is identical to, if so."""
    while "bit_identical_to" in case["variants"][variant]:
        variant = case["variants"][variant]["bit_identical_to"]
    prefix = f"{variant}."
    found = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    return found or {name: t for name, t in tensors.items() if "." not in name and name != "input"}


def difference(expected: Tensor, ours: Tensor | None) -> str:
    if ours is None:
        return "is missing"
    if ours.dtype != expected.dtype or ours.shape != expected.shape:
        found, wanted = f"{ours.dtype} {list(ours.shape)}", list(expected.shape)
        return f"is {found}, expected {expected.dtype} {wanted}"
    differs = (as_bytes(ours) != as_bytes(expected)).any(dim=-1)
    if not bool(differs.any()):
        return ""
    at = int(differs.to(torch.uint8).argmax())
    a, b = ours.reshape(-1)[at], expected.reshape(-1)[at]
    shown = f"{float(a)} instead of {float(b)} at element {at}"
    return f"differs in {int(differs.sum())} of {differs.numel()} elements: {shown}"


def as_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8).reshape(flat.numel(), -1)


def check(case: Mapping[str, Any], folder: Path) -> list[Outcome]:
    tensors = load_file(folder / case["file"])
    outcomes = []
    for variant, described in case["variants"].items():
        make = VARIANTS.get(case["format"], {}).get(variant)
        normative = case.get("normative", True) and described.get("normative", True)
        found = ""
        if make is not None:
            expected = expected_tensors(case, variant, tensors)
            ours = make(Case(case["case"], tensors.get("input"), expected))
            parts = ((name, difference(t, ours.get(name))) for name, t in expected.items())
            found = "; ".join(f"{name} {text}" for name, text in parts if text)
            found = found or ("" if expected else "has no tensors")
        outcomes.append(
            Outcome(case["format"], variant, case["file"], normative, make is not None, found)
        )
    return outcomes


def report(outcomes: list[Outcome], verbose: bool) -> bool:
    """Print the table; whether all normative rows agree."""
    total: Counter[tuple[str, str]] = Counter((o.format, o.variant) for o in outcomes)
    good = Counter((o.format, o.variant) for o in outcomes if o.covered and not o.difference)
    bad = [o for o in outcomes if o.normative and (o.difference or not o.covered)]
    missing = {(o.format, o.variant) for o in outcomes if not o.covered}
    record = {key for key in total if not any(o.normative for o in outcomes if o[:2] == key)}
    for key, count in total.items():
        note = "  no function" if key in missing else ""
        note += "  record of behaviour, not normative" if key in record else ""
        print(f"{key[0]:<20}{key[1]:<28}{good[key]:>4} / {count}{note}")
    for outcome in outcomes if verbose else bad[:20]:
        if outcome.difference:
            print(f"{outcome.file} {outcome.variant}: {outcome.difference}")
    normative = sum(o.normative for o in outcomes)
    print(f"{normative - len(bad)} of {normative} normative rows match byte for byte")
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--format", help="only this format")
    parser.add_argument("--verbose", action="store_true", help="tell every difference")
    arguments = parser.parse_args()
    try:
        manifest = yaml.safe_load((arguments.folder / "manifest.yaml").read_text(encoding="utf-8"))
        cases = [c for c in manifest["cases"] if arguments.format in (None, c["format"])]
        outcomes = [outcome for case in cases for outcome in check(case, arguments.folder)]
    except (OSError, yaml.YAMLError, SafetensorError, KeyError, TypeError) as error:
        print(f"{arguments.folder}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    if not outcomes:
        print(f"{arguments.folder}: no case to check", file=sys.stderr)
        return 2
    return 0 if report(outcomes, arguments.verbose) else 1


if __name__ == "__main__":
    sys.exit(main())
