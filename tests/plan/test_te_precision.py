"""Per-module precision as typed content of a plan."""

from __future__ import annotations

from typing import Any

from precision_plan.plan import PrecisionPlan

CONFIGS = {"bf16": {"training_recipe": {}}, "mxfp8": {"training_recipe": {}}}
FIRST = {"config": "bf16", "pattern": "*.linear_fc1", "enabled": True}
SECOND = {"config": "mxfp8", "pattern": "*", "enabled": True}


def plan(matchers: dict[str, Any], configs: dict[str, Any] = CONFIGS) -> PrecisionPlan:
    config = {"configs": configs, "matchers": matchers}
    return PrecisionPlan.model_validate({"training": {"te_precision_config": config}})


def test_the_order_of_matchers_counts_and_no_other_order_does() -> None:
    one = plan({"a": FIRST, "b": SECOND})
    assert one.fingerprint() != plan({"b": SECOND, "a": FIRST}).fingerprint()
    turned = dict(reversed(CONFIGS.items()))
    assert one.fingerprint() == plan({"a": FIRST, "b": SECOND}, turned).fingerprint()


def test_settings_keep_the_empty_recipe_which_means_the_base_format() -> None:
    config = plan({"a": FIRST}).settings()["training"]["te_precision_config"]
    assert config == {"configs": CONFIGS, "matchers": {"a": FIRST}}


def test_only_matchers_that_say_enabled_are_read() -> None:
    off = {"config": "bf16", "pattern": "*"}
    config = plan({"a": off, "b": {**off, "enabled": False}, "c": SECOND}).training
    assert config.te_precision_config is not None
    assert [name for name, _ in config.te_precision_config.active()] == ["c"]
    assert list(config.te_precision_config.used()) == ["mxfp8"]
    assert config.te_precision_config.match("decoder.layers.0.mlp.linear_fc2") is not None
