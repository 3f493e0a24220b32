"""The facts and rules about TE's recipes against the classes of three releases.

Recipes get generated arguments and variables; every release's own module decides what it takes
and what the values become.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

pytest.importorskip("pydantic")
pytest.importorskip("torch")

from precision_plan.batch import lint_row
from precision_plan.facts.transformer_engine import TeField, TeRecipe, te_recipes
from tests._hypothesis import examples
from tests._packages import TE_RELEASES, te_recipe_module
from tests.conformance import megatron_arguments as megatron
from tests.conformance.command_lines import CommandLine
from tests.conformance.megatron_classes import megatron_class, transformer_engine
from tests.conformance.te_builders import recipe_builders
from tests.conformance.test_megatron_properties import arguments, errors

VARIABLES = {
    field.env: field for recipe in te_recipes().values() for field in recipe.fields if field.env
}
TEXTS = ("0", "1", "true", "", "none", "weights", "all", "inputs", "mae", "MSE", "high_precision")


def factory(role: object) -> None:
    """Stands for a function that a recipe would call; none is called."""


@lru_cache(maxsize=128)
def release_module(release: str, env: tuple[tuple[str, str], ...]) -> ModuleType:
    """The recipe module of a release in a process with these variables."""
    module = te_recipe_module(release, dict(env))
    sys.modules.pop(module.__name__, None)  # thousands would pile up
    return module


@st.composite
def environments(draw: st.DrawFn) -> tuple[tuple[str, str], ...]:
    """Up to two variables of TE's recipes, with values that fit and values that do not."""
    names = draw(st.lists(st.sampled_from(sorted(VARIABLES)), max_size=2, unique=True))
    chosen = []
    for name in names:
        fitting = VARIABLES[name].allowed or ("0", "1")
        chosen.append((name, draw(st.sampled_from((*map(str, fitting), *TEXTS)))))
    return tuple(sorted(chosen))


def values(field: TeField) -> st.SearchStrategy[Any]:
    """Values of the field's type. Only formats that TE tells apart are there: no class looks
    whether an FP8 format is an FP4 one."""
    if field.type == "Format":
        return st.sampled_from(["E2M1", "E4M3"] if field.name == "fp4_format" else FP8_FORMATS)
    if field.type == "bool":
        return st.booleans()
    if field.type == "int":
        return st.integers(-1, 3)
    if field.type == "MMParams":
        return st.booleans().map(lambda on: {"use_split_accumulator": on})
    texts = st.sampled_from((*(field.allowed or ()), "nonsense"))
    if "callable" in field.type:
        functions = st.just(factory)
        return st.one_of(functions, texts) if "str" in field.type else functions
    return st.one_of(texts, st.none()) if "None" in field.type else texts


FP8_FORMATS = ("E4M3", "E5M2", "HYBRID")
Case = tuple[str, TeRecipe, tuple[tuple[str, str], ...], dict[str, Any]]


@st.composite
def constructions(draw: st.DrawFn) -> Case:
    """A release, one of its recipes, variables and some arguments."""
    release = draw(st.sampled_from(TE_RELEASES))
    present = [recipe for recipe in te_recipes().values() if release in recipe.versions]
    recipe = draw(st.sampled_from(present))
    fields = recipe.fields_at(release)
    names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True))
    names += [name for name in fields if fields[name].required and draw(st.integers(0, 7))]
    chosen = {name: draw(values(fields[name])) for name in names}
    return release, recipe, draw(environments()), chosen


def as_te(module: ModuleType, value: Any) -> Any:
    """A value of the facts as TE's own object."""
    if isinstance(value, Mapping):
        return module.MMParams(**value)
    return getattr(module.Format, value) if isinstance(value, str) and value in FORMATS else value


FORMATS = (*FP8_FORMATS, "E2M1")


@examples(700)
@given(constructions())
def test_the_facts_say_what_a_constructor_takes(case: Case) -> None:
    release, recipe, env, chosen = case
    module = release_module(release, env)
    kind = getattr(module, recipe.name)
    fields = recipe.fields_at(release)
    assert set(kind.__dataclass_fields__) == set(fields)
    refused = recipe.refused(release, dict(env), chosen)
    try:
        built = kind(**{name: as_te(module, value) for name, value in chosen.items()})
    except (ValueError, AssertionError, TypeError) as refusal:
        event("refused")
        assert refused, refusal
        return
    event("accepted")
    assert not refused, [field.name for field in refused]
    for name, field in fields.items():
        expected = chosen.get(name, field.default_in(dict(env)))
        assert getattr(built, name) == as_te(module, expected), name


def test_a_recipe_exists_from_its_release_on() -> None:
    for release in TE_RELEASES:
        module = release_module(release, ())
        for name, recipe in te_recipes().items():
            assert hasattr(module, name) == (release in recipe.versions), (release, name)


OPTIONS = (
    *("--fp8-margin 1", "--fp8-interval 2", "--fp8-amax-history-len 1024"),
    *("--fp8-amax-compute-algo max", "--no-fp8-wgrad", "--fp8-quantizer-factory os.path.join"),
    *("--fp4-quantizer-factory os.path.join", "--first-last-layers-bf16"),
)
QUANTIZED = (
    *(
        f"--fp8-format {form} --fp8-recipe {recipe}"
        for form in ("e4m3", "hybrid")
        for recipe in ("delayed", "tensorwise", "mxfp8", "blockwise", "custom")
    ),
    *("--fp4-format e2m1", "--fp4-format e2m1 --fp4-recipe custom"),
)
MODEL = "--num-layers 4 --hidden-size 128 --num-attention-heads 8 --seq-length 128 --lr 1e-4 --bf16"


@st.composite
def quantized_lines(draw: st.DrawFn) -> CommandLine:
    """A quantized job beside one of the releases."""
    options = draw(st.lists(st.sampled_from(OPTIONS), max_size=4, unique=True))
    words = " ".join((MODEL, "--max-position-embeddings 128", draw(st.sampled_from(QUANTIZED))))
    argv = (*words.split(), *" ".join(options).split())
    return CommandLine(argv, draw(st.sampled_from(TE_RELEASES)), dict(draw(environments())))


@examples(500)
@given(quantized_lines())
def test_megatron_builds_the_recipes_that_the_linter_accepts(line: CommandLine) -> None:
    ours = errors(lint_row(line.row()))
    assume(not ours.keys() & {"parse", "validate", "transformer_config"})
    release = line.transformer_engine
    module = release_module(release, tuple(sorted(line.env.items())))
    name, keywords = megatron.transformer_config(arguments(line))
    with transformer_engine(release):
        config = megatron_class(name)(**keywords)
        fp8_recipe, fp4_recipe = recipe_builders(module, release)
        try:
            recipe = fp4_recipe(config) if config.fp4 else fp8_recipe(config)
        except (ValueError, AssertionError) as refusal:
            event("refused")
            assert "te_recipe" in ours, f"the linter accepts what Megatron refuses: {refusal}"
            return
    event("built")
    assert "te_recipe" not in ours, f"Megatron builds {recipe}"
