"""conf/config.yaml: plain Hydra composes it, alone and with every recipe, to the same data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from precision_plan.compose import Composer
from precision_plan.plan import SECTIONS

PLAIN = """
import json, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
told = {}
with initialize_config_dir(sys.argv[1], version_base=None):
    for name in [None, *sys.argv[2:]]:
        chosen = compose("config", [] if name is None else [f"+recipes={name}"])
        told[name or ""] = OmegaConf.to_container(chosen, resolve=True)
    full = compose("config", return_hydra_config=True)
told["hydra"] = {
    "dir": full.hydra.run.dir,
    "output_subdir": full.hydra.output_subdir,
    "handlers": full.hydra.job_logging.get("handlers"),
}
print(json.dumps(told))
"""
"""Composes in a process of its own: Hydra's plugins are global, and ours must not be there."""


@pytest.fixture(scope="module")
def plain(conf):
    recipes = sorted(file.stem for file in (conf / "recipes").glob("*.yaml"))
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(conf), *recipes],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_one_choice_per_section_then_itself(conf):
    text = (conf / "config.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)["defaults"]
    assert defaults[: len(SECTIONS)] == [{section: None} for section in SECTIONS]
    assert defaults[len(SECTIONS)] == "_self_"


def test_composes_alone(plain):
    assert plain[""] == {"dry_run": False, "launcher": None}


def test_leaves_no_files(plain):
    assert plain["hydra"] == {"dir": ".", "output_subdir": None, "handlers": None}


def test_recipe_composes_as_plain_hydra_does(conf, plain, recipe):
    # Hydra reaches the folder under its own name; the singular is the product's spelling.
    expected = dict(plain[recipe])
    found = dict(Composer(conf).compose(recipe).data)
    for option in ("dry_run", "launcher"):
        expected.pop(option)
        found.pop(option, None)
    assert found == expected
