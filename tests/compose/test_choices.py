"""Group files that say nothing else than a section does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_plan.compose import Composer

CONF = Path(__file__).parents[2] / "conf"


def chosen(settings: dict[str, Any], conf: Path = CONF) -> dict[str, tuple[str, set[str]]]:
    found = Composer(conf).matching_choices(settings)
    return {choice.group: (choice.name, set(choice.fields)) for choice in found}


def test_a_file_that_is_a_part_of_the_section() -> None:
    found = chosen({"hardware": {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}})
    assert found == {"hardware": ("h100", {"hardware.gpu", "hardware.gpus_per_node"})}


@pytest.mark.parametrize(
    "hardware",
    [{"gpu": "h100"}, {"gpu": "h100", "gpus_per_node": 4}, {"gpu": "h100", "gpus_per_node": 8.0}],
)
def test_a_file_that_says_more_or_other_things_is_none(hardware: dict[str, Any]) -> None:
    assert chosen({"hardware": hardware}) == {}


def test_the_largest_one_is_taken() -> None:
    optimizer = {
        "optimizer": "adam", "use_distributed_optimizer": True, "optimizer_cpu_offload": True,
        "overlap_cpu_optimizer_d2h_h2d": True, "use_precision_aware_optimizer": True,
    }  # fmt: skip
    name, fields = chosen({"optimizer": optimizer})["optimizer"]
    assert name == "adam-cpu-offload"
    assert len(fields) > 2


def test_variables_count_one_by_one() -> None:
    found = chosen({"env": {"all": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONUNBUFFERED": "1",
                                    "MORE": "x"}}})  # fmt: skip
    assert found["env"] == (
        "megatron", {"env.all.CUDA_DEVICE_MAX_CONNECTIONS", "env.all.PYTHONUNBUFFERED"}
    )  # fmt: skip


def test_interpolations_and_order(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{}\n")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "one.yaml").write_text("entrypoint: ${hardware.gpu}\n")
    (tmp_path / "launch" / "two.yaml").write_text("defaults: [one]\nentrypoint: train.py\n")
    assert chosen({"launch": {"entrypoint": "${hardware.gpu}"}}, tmp_path) == {}
    assert chosen({"launch": {"entrypoint": "train.py"}}, tmp_path) == {}
    (tmp_path / "launch" / "three.yaml").write_text("entrypoint: train.py\n")
    assert chosen({"launch": {"entrypoint": "train.py"}}, tmp_path)["launch"][0] == "three"
