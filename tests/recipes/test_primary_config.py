"""conf/config.yaml: plain Hydra composes it, alone and with every recipe, to the same data."""

from __future__ import annotations

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from precision_plan.compose import Composer
from precision_plan.plan import SECTIONS


def _hydra(conf, *overrides):
    with initialize_config_dir(str(conf), version_base=None):
        return OmegaConf.to_container(compose("config", list(overrides)), resolve=True)


def test_one_choice_per_section_then_itself(conf):
    text = (conf / "config.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)["defaults"]
    assert defaults[: len(SECTIONS)] == [{section: None} for section in SECTIONS]
    assert defaults[len(SECTIONS)] == "_self_"


def test_composes_alone(conf):
    assert _hydra(conf) == {"dry_run": False, "launcher": None}


def test_leaves_no_files(conf):
    with initialize_config_dir(str(conf), version_base=None):
        full = compose("config", return_hydra_config=True)
    assert full.hydra.run.dir == "."
    assert full.hydra.output_subdir is None
    assert full.hydra.job_logging.get("handlers") is None


def test_recipe_composes_as_plain_hydra_does(conf, recipe):
    # Hydra reaches the folder under its own name; the singular is the product's spelling.
    expected = _hydra(conf, f"+recipes={recipe}")
    found = dict(Composer(conf).compose(recipe).data)
    for option in ("dry_run", "launcher"):
        expected.pop(option)
        found.pop(option, None)
    assert found == expected
