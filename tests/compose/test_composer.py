"""Recipes by name and path, folders that are searched, origins, options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from precision_plan.compose import Composer, Composition
from precision_plan.plan import Origin
from tests.compose.conftest import told

Compose = Callable[..., Composition]
Write = Callable[[str, "str | bytes"], Path]


def places(composition: Composition) -> dict[str, tuple[str, str]]:
    return {key: (str(where), where.layer) for key, where in composition.origins.items()}


def test_every_key_tells_who_set_it(compose: Compose) -> None:
    texts = ("training.bf16=false", "rollout=bf16", "+model.vocab_size=32", "env.all.A=b")
    composition = compose("base", *texts)
    assert composition.diagnostics == ()
    assert composition.data == {
        "model": {"name": "small", "num_layers": 4, "vocab_size": 32},
        "hardware": {"gpu": "h100", "gpus_per_node": 8, "nodes": 2},
        "training": {
            "bf16": False,
            "fp8_format": "e4m3",
            "fp8_recipe": "blockwise",
            "seq_length": 4096,
        },
        "rollout": {"dtype": "bfloat16"},
        "recipe": {"title": "A small recipe", "source": ["somewhere"], "maturity": "stable"},
        "env": {"all": {"A": "b"}},
    }
    where = places(composition)
    assert where["hardware.gpu"] == ("conf/hardware/h100.yaml:2:1", "hardware=h100")
    assert where["hardware.nodes"] == ("conf/recipes/base.yaml:13:3", "recipe")
    assert where["training"] == ("conf/recipes/base.yaml:15:1", "recipe")
    assert where["training.bf16"] == ("training.bf16=false", "override")
    assert where["training.fp8_format"] == ("conf/training/fp8.yaml:2:1", "training=fp8")
    assert where["rollout.dtype"] == ("conf/rollout/bf16.yaml:1:1", "rollout=bf16")
    assert where["model.vocab_size"] == ("+model.vocab_size=32", "override")
    assert where["env"] == where["env.all"] == where["env.all.A"] == ("env.all.A=b", "override")
    assert where["dry_run"] == ("conf/config.yaml:8:1", "config")


def test_origins_follow_what_is_replaced(compose: Compose, write: Write) -> None:
    write("recipes/odd.yaml", "rollout:\n  quantization_config: {a: 1, b: {c: 2}}\n")
    texts = ("rollout.quantization_config.b=null", "~rollout.quantization_config.a")
    where = places(compose("odd", *texts))
    assert "rollout.quantization_config.a" not in where
    assert "rollout.quantization_config.b.c" not in where
    assert where["rollout.quantization_config.b"] == (texts[0], "override")
    typed = "rollout.quantization_config={d: {e: 1}}"
    where = places(compose("odd", typed))
    assert where["rollout.quantization_config.d.e"] == (typed, "override")
    assert where["rollout.quantization_config.a"][0] == "conf/recipes/odd.yaml:2:25"


def test_packages_move_keys_and_keep_their_place(compose: Compose, write: Write) -> None:
    write("hardware/both.yaml", "# @package _global_\nhardware:\n  gpu: a100\nmodel:\n  name: x\n")
    write(
        "recipes/odd.yaml",
        "defaults:\n  - override /hardware: both\n  - /rollout@checkpoint.extra: bf16\n",
    )
    write("recipes/odd2.yaml", "defaults:\n  - /rollout@checkpoint.extra: bf16\n")
    assert [each.id for each in compose("odd").diagnostics] == ["PP016"]  # overrides come last
    composition = compose("odd2", "hardware=both")
    assert composition.diagnostics == ()
    where = places(composition)
    assert where["hardware.gpu"] == ("conf/hardware/both.yaml:3:3", "hardware=both")
    assert where["model.name"] == ("conf/hardware/both.yaml:5:3", "hardware=both")
    assert where["checkpoint.extra.dtype"] == (
        "conf/rollout/bf16.yaml:1:1",
        "rollout@checkpoint.extra=bf16",
    )


def test_a_recipe_may_build_on_another(compose: Compose, write: Write) -> None:
    write(
        "recipes/child.yaml",
        "defaults:\n  - base\n  - _self_\n  - override /training: bf16\nhardware: {nodes: 4}\n",
    )
    composition = compose("child")
    assert composition.diagnostics == ()
    assert composition.choices == {
        "model": "small", "hardware": "h100", "training": "bf16", "recipe": "child",
    }  # fmt: skip
    where = places(composition)
    assert where["hardware.nodes"] == ("conf/recipes/child.yaml:5:12", "recipe")
    assert where["training.seq_length"] == ("conf/recipes/base.yaml:16:3", "recipe=base")


def test_an_override_of_a_group_wins_over_the_recipe(compose: Compose) -> None:
    composition = compose("base", "hardware=b200")
    assert composition.data["hardware"] == {"gpu": "b200", "gpus_per_node": 8, "nodes": 2}
    assert composition.choices["hardware"] == "b200"
    assert composition.origins["hardware.gpu"] == Origin(
        "conf/hardware/b200.yaml", 1, 1, "hardware=b200"
    )


def test_a_recipe_by_name_or_by_path(conf: Path, compose: Compose, tmp_path: Path) -> None:
    by_name = compose("base")
    elsewhere = tmp_path / "away" / "mine.yml"
    elsewhere.parent.mkdir()
    elsewhere.write_text("defaults: [sibling, _self_]\nhardware: {nodes: 3}\n")
    (elsewhere.parent / "sibling.yaml").write_text("training: {bf16: true}\n")
    for recipe in ("conf/recipes/base.yaml", conf / "recipes" / "base.yaml", "base.yaml"):
        by_path = compose(recipe)
        assert (by_path.name, by_path.data) == ("base", by_name.data)
        assert by_path.origins == by_name.origins
    for recipe in (elsewhere, "away/mine.yml", str(elsewhere)):
        composition = compose(recipe)
        assert (composition.name, composition.choices) == ("mine", {"recipe": "mine"})
        assert composition.data == {"training": {"bf16": True}, "hardware": {"nodes": 3}}
        assert composition.files == ("conf/config.yaml", "away/sibling.yaml", "away/mine.yml")
    assert compose(None, "+recipe=base").data == by_name.data
    assert compose(None, f"+recipe={elsewhere}").name == "mine"


def test_any_suffix_by_path(compose: Compose, tmp_path: Path) -> None:
    (tmp_path / "recipe.txt").write_text("hardware: {nodes: 3}\n")
    assert compose(Path("recipe.txt")).data == {"hardware": {"nodes": 3}}


def test_a_missing_path_is_not_looked_for_by_its_name(compose: Compose) -> None:
    assert told(compose("nowhere/base.yaml").diagnostics) == [
        "PP010 nowhere/base.yaml cannot read nowhere/base.yaml: it does not exist"
    ]


def test_did_you_mean(compose: Compose) -> None:
    (found,) = compose("bse").diagnostics
    assert told((found,)) == ["PP006 +recipe=bse there is no recipe named 'bse'"]
    assert [fix.text for fix in found.fix] == ["did you mean base?"]
    assert [premise.text for premise in found.because] == ["there are: base"]


def test_a_missing_group_brings_no_other_findings(compose: Compose, write: Write) -> None:
    write("recipes/odd.yaml", "launch: {actor_num_gpus_per_node: '${hardware.gpus_per_node}'}\n")
    assert [each.id for each in compose("odd").diagnostics] == ["PP014"]
    assert [each.id for each in compose("odd", "hardware=h10").diagnostics] == ["PP006"]


def test_more_folders(conf: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "recipes").mkdir(parents=True)
    (mine / "hardware").mkdir()
    (mine / "recipes" / "own.yaml").write_text("defaults: [override /hardware: lab]\n")
    (mine / "recipes" / "own.yaml").write_text("defaults:\n  - override /hardware: lab\n")
    (mine / "hardware" / "lab.yaml").write_text("gpu: l40s\n")
    (mine / "hardware" / "h100.yaml").write_text("gpu: never\n")
    composer = Composer(conf, [mine])
    assert composer.recipes() == ("base", "own")
    assert composer.compose("own").data == {"hardware": {"gpu": "l40s"}}
    assert composer.compose("base").data["hardware"]["gpu"] == "h100"  # the first folder wins
    override = f"hydra.searchpath=[file://{mine}]"
    assert Composer(conf).compose("own", [override]).data == {"hardware": {"gpu": "l40s"}}
    (conf / "config.yaml").write_text(
        f"hydra:\n  searchpath: [{mine}, gone]\ndefaults:\n  - hardware: null\n  - _self_\n"
    )
    composition = Composer(conf).compose("own")
    assert composition.data == {"hardware": {"gpu": "l40s"}}
    assert told(composition.diagnostics) == [
        "PP010 conf/config.yaml:2:3 hydra.searchpath: 'gone' is no folder"
    ]


def test_the_folder_is_found(conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = Composer(Path(__file__).parents[2] / "conf").recipes()
    assert Composer().conf_dir == conf
    monkeypatch.chdir(conf)
    assert Composer().recipes() == shipped and "qwen3-30b-fp8" in shipped
    other = tmp_path / "other" / "conf"  # another program's Hydra folder
    other.mkdir(parents=True)
    (other / "config.yaml").write_text("db: mysql\n")
    monkeypatch.chdir(other.parent)
    assert Composer().recipes() == shipped


def test_a_folder_without_a_primary_config(tmp_path: Path) -> None:
    (found,) = Composer(tmp_path).compose("base").diagnostics
    assert found.id == "PP006" and "config.yaml" in found.message


def test_paths_are_shown_from_where_one_stands(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = []
    for folder in (conf.parent, conf / "recipes", conf / "hardware"):
        monkeypatch.chdir(folder)
        origins.append(str(Composer(conf).compose("base").origins["hardware.nodes"]))
    assert origins == ["conf/recipes/base.yaml:13:3", "base.yaml:13:3",
                       f"{conf}/recipes/base.yaml:13:3"]  # fmt: skip


def test_options(compose: Compose) -> None:
    assert compose("base").options == {"dry_run": False, "launcher": None}
    composition = compose("base", "dry_run=true", "launcher=ray")
    assert composition.options == {"dry_run": True, "launcher": "ray"}
    assert composition.diagnostics == ()
    assert told(compose("base", "dry_run=1", "launcher=slurm").diagnostics) == [
        "PP004 dry_run=1 dry_run is 1; it takes true or false",
        "PP003 launcher=slurm launcher is 'slurm'; it takes local or ray",
    ]


def test_hydra_settings_are_no_part_of_a_plan(compose: Compose) -> None:
    assert compose("base", "hydra.verbose=true", "hydra/launcher=basic") == compose("base")


def test_references(compose: Compose, write: Write) -> None:
    write("recipes/odd.yaml", (
        "defaults:\n  - override /hardware: h100\n"
        "model: {name: m, num_layers: 4, kv_channels: '${.num_layers}'}\n"
        "checkpoint: {save: 'runs/${model.name}/${hardware.gpu}', quantization_config: {bits: 4}}\n"
        "rollout:\n"
        "  quantization_config: ${checkpoint.quantization_config}\n"
        "  dtype: ${..model.name}\n"
        "parallel: {tensor_model_parallel_size: '${hardware.gpus_per_node}'}\n"
    ))  # fmt: skip
    composition = compose("odd", "rollout.quantization_config.fmt=${model.name}")
    assert composition.diagnostics == ()
    assert composition.data["model"]["kv_channels"] == 4
    assert composition.data["checkpoint"]["save"] == "runs/m/h100"
    assert composition.data["rollout"]["dtype"] == "m"
    assert composition.data["parallel"]["tensor_model_parallel_size"] == 8


def test_suppressions_of_all_files(compose: Compose, write: Write) -> None:
    write("hardware/h100.yaml", "gpu: h100  # precision-plan: ignore[PP201] lab machine\n")
    write("recipes/odd.yaml", "defaults:\n  - override /hardware: h100\n"
                              "model:\n  # precision-plan: ignore[PP801] small on purpose\n"
                              "  num_layers: 1\n")  # fmt: skip
    assert [(each.ids, each.origin.file, each.line) for each in compose("odd").suppressions] == [
        (("PP201",), "conf/hardware/h100.yaml", 1),
        (("PP801",), "conf/recipes/odd.yaml", 5),
    ]
