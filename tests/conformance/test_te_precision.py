"""Per-module precision against megatron-core: its matchers, its parser of recipes, its models."""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from precision_plan.lower.te_precision import file_text
from precision_plan.plan import PrecisionPlan, Target, effective
from precision_plan.plan.layer_map import LayerMap, layer_map
from precision_plan.plan.model_modules import model_modules
from precision_plan.plan.pipeline import local_layers
from precision_plan.plan.te_precision import TePrecisionConfig
from precision_plan.rules.engine import check

torch = pytest.importorskip("torch")


def megatron(name: str) -> ModuleType:
    """A module of megatron-core, imported as on a machine without Transformer Engine."""
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed", allow_module_level=True)
    hidden = {key: sys.modules[key] for key in sys.modules if key.split(".")[0] == _TE}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in hidden:
            patch.delitem(sys.modules, key)
        patch.setitem(sys.modules, _TE, None)
        return importlib.import_module(f"megatron.core.{name}")


_TE = "transformer_engine"
files = megatron("quantization.quant_config")
utils = megatron("quantization.utils")
engine = megatron("extensions.transformer_engine")
fp8_utils = megatron("fp8_utils")
block = megatron("transformer.transformer_block")
layer = megatron("transformer.transformer_layer")

SAMPLES = settings(max_examples=200, deadline=None)
TYPE = "TEQuantizationParams"

# Strategies -----------------------------------------------------------------------------------
PARTS = ("decoder", "layers", "0", "1", "12", "mlp", "experts", "linear_fc1", "linear_fc2")
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map(".".join)
PATTERNS = st.lists(
    st.sampled_from([*PARTS, "*", "?", "[01]", "[!0]", "[", ".", "linear_fc?", "\n"]), max_size=6
).map("".join)
CONFIG_NAMES = st.sampled_from(["bf16", "mxfp8", "true", "1.5", "a b", "*", "ü", 'q"\\'])
MATCHERS = st.fixed_dictionaries(
    {"config": CONFIG_NAMES, "type": st.just("glob"), "pattern": PATTERNS},
    optional={"enabled": st.booleans()},
)
RECIPES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "fp8_quantization_recipe": st.sampled_from(
            ["tensorwise", "blockwise", "mxfp8", "delayed", "custom"]
        ),
        "fp4_quantization_recipe": st.sampled_from(["nvfp4", "custom"]),
        "custom_recipe_factory": st.just("package.module.factory"),
        "fp8_format": st.sampled_from(["e4m3", "hybrid"]),
        "override_quantized_autocast": st.booleans(),
        "override_nonquantized_autocast": st.booleans(),
        "tp_only_amax_red": st.booleans(),
        "fp8_param": st.booleans(),
    },
)
PARAMS = st.fixed_dictionaries(
    {}, optional={"training_recipe": RECIPES, "evaluation_recipe": RECIPES}
)
CONTENTS = st.fixed_dictionaries(
    {
        "configs": st.dictionaries(CONFIG_NAMES, PARAMS, max_size=3),
        "matchers": st.dictionaries(CONFIG_NAMES, MATCHERS, max_size=4),
    }
)


def real_params(params: Mapping[str, Any]) -> Any:
    """What Megatron makes of a configuration; raises as it does."""
    config = files.QuantizationConfig({"transformer_engine_config_type": TYPE, **params}, None, "x")
    return engine.TEQuantizationParams.parse_from_config(config)


def plan(**sections: Any) -> PrecisionPlan:
    return PrecisionPlan.model_validate({"software": {"megatron_core": "0.16.1"}, **sections})


def map_of(settings: PrecisionPlan) -> LayerMap:
    found = layer_map(settings, Target.of(settings))
    assert found is not None
    return found


# Matching and the file ------------------------------------------------------------------------
@SAMPLES
@given(st.dictionaries(CONFIG_NAMES, MATCHERS, max_size=5), NAMES)
def test_the_same_matcher_decides(matchers: dict[str, Any], module: str) -> None:
    real = files.RecipeConfig.from_config_dict({"matchers": matchers})
    wanted = real.match_to_config_key(files.MatchContext(module, None))
    found = TePrecisionConfig.model_validate({"matchers": matchers}).match(module)
    assert (found[1].config if found is not None else None) == wanted


@SAMPLES
@given(CONTENTS)
def test_megatron_reads_the_emitted_file_as_it_was_meant(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "te_precision.yaml"
    path.write_text(file_text(TePrecisionConfig.model_validate(content)), encoding="ascii")
    read = utils.load_quantization_recipe(str(path))
    assert read.configs == {
        name: {"transformer_engine_config_type": TYPE, **params}
        for name, params in content["configs"].items()
    }
    assert [(matcher.pattern, matcher.config_key) for matcher in read.matchers] == [
        (matcher["pattern"], matcher["config"])
        for matcher in content["matchers"].values()
        if matcher.get("enabled")
    ]


# What Megatron refuses ------------------------------------------------------------------------
def build_errors(config: dict[str, Any]) -> set[str]:
    """Errors about a per-module configuration of a model that it reaches."""
    training = {
        "bf16": True,
        "fp8_format": "e4m3",
        "fp8_recipe": "mxfp8",
        "te_precision_config": config,
    }
    found = check(plan(training=training)).diagnostics
    return {each.id for each in found if each.severity == "error" and each.stage != "te_hardware"}


@SAMPLES
@given(PARAMS)
def test_a_configuration_is_refused_where_megatron_refuses_it(params: dict[str, Any]) -> None:
    matcher = {"config": "one", "type": "glob", "pattern": "*", "enabled": True}
    found = build_errors({"configs": {"one": params}, "matchers": {"all": matcher}})
    try:
        real_params(params)
    except ValueError:
        assert found & {"PP152", "PP153", "PP154", "PP155", "PP158"}
    else:
        assert not found


@SAMPLES
@given(
    st.fixed_dictionaries(
        {"type": st.just("glob")},
        optional={
            "config": st.sampled_from(["one", "other"]),
            "pattern": st.sampled_from(["*", "*.linear_fc2"]),
            "enabled": st.booleans(),
        },
    )
)
def test_a_matcher_is_refused_where_megatron_refuses_it(matcher: dict[str, Any]) -> None:
    content = {"configs": {"one": {"training_recipe": {}}}, "matchers": {"m": matcher}}
    found = build_errors(content)
    try:
        recipe = files.RecipeConfig.from_config_dict(content)
        recipe.match(files.MatchContext("decoder.layers.0.mlp.linear_fc2", 0))
    except AssertionError:
        assert "PP157" in found
    except KeyError:
        assert found == {"PP156"}
    else:
        assert not found


# What a module computes in ----------------------------------------------------------------------
@SAMPLES
@given(PARAMS, st.booleans(), st.booleans())
def test_a_module_is_quantized_where_megatron_quantizes_it(
    params: dict[str, Any], model_quantizes: bool, training: bool
) -> None:
    try:
        real = real_params(params)
    except ValueError:
        return
    wanted = engine._get_should_context_be_quantized_params(real, training, model_quantizes)
    matcher = {"config": "one", "pattern": "*", "enabled": True}
    config = {"configs": {"one": params}, "matchers": {"all": matcher}}
    quantized = {"fp8_format": "e4m3", "fp8_recipe": "blockwise"} if model_quantizes else {}
    layers = map_of(
        plan(
            model={"num_layers": 1},
            training={"bf16": True, **quantized, "te_precision_config": config},
        )
    )
    for found in layers.decoder[0].values():
        assert ((found.format if training else found.evaluation) != "bf16") is wanted


@SAMPLES
@given(st.integers(1, 12), st.integers(0, 14), st.integers(0, 14), st.booleans())
def test_the_same_layers_stay_in_bf16(layers: int, start: int, end: int, exempts: bool) -> None:
    config = SimpleNamespace(
        num_layers=layers,
        first_last_layers_bf16=exempts,
        num_layers_at_start_in_bf16=start,
        num_layers_at_end_in_bf16=end,
    )
    training = {
        "bf16": True,
        "fp8_format": "e4m3",
        "fp8_recipe": "mxfp8",
        "first_last_layers_bf16": exempts,
        "num_layers_at_start_in_bf16": start,
        "num_layers_at_end_in_bf16": end,
    }
    found = map_of(plan(model={"num_layers": layers}, training=training))
    for number, formats in enumerate(found.decoder):
        kept = fp8_utils.is_first_last_bf16_layer(config, number)
        assert {each.format for each in formats.values()} == {"bf16" if kept else "mxfp8"}


# Where layers are -----------------------------------------------------------------------------
@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 24),
    st.integers(1, 5),
    st.sampled_from([None, None, 1, 2, 3]),
    st.sampled_from([None, None, 1, 2, 4]),
    st.sampled_from([None, None, 1, 2, 3]),
)
def test_layers_have_the_numbers_that_megatron_gives_them(
    layers: int, stages: int, first: int | None, last: int | None, virtual: int | None
) -> None:
    if stages == 1:
        first = last = None
    assume((first or 0) + (last or 0) <= layers)
    parallel = {
        "pipeline_model_parallel_size": stages,
        "decoder_first_pipeline_num_layers": first,
        "decoder_last_pipeline_num_layers": last,
        "virtual_pipeline_model_parallel_size": virtual,
    }
    found = local_layers(plan(model={"num_layers": layers}, parallel=parallel))
    config = SimpleNamespace(
        num_layers=layers,
        pipeline_model_parallel_size=stages,
        pipeline_model_parallel_layout=None,
        num_layers_in_first_pipeline_stage=first,
        num_layers_in_last_pipeline_stage=last,
        virtual_pipeline_model_parallel_size=virtual if virtual != 1 else None,
        account_for_embedding_in_pipeline_split=False,
        account_for_loss_in_pipeline_split=False,
    )
    try:
        wanted = dict(numbers(config))
    except AssertionError:
        assert found is None
        return
    except ZeroDivisionError:  # two uneven stages with chunks, which Megatron cannot place
        return
    if sorted(wanted) == list(range(layers)):  # else layers are lost, which Megatron lets pass
        assert found == tuple(wanted[number] for number in range(layers))


def numbers(config: SimpleNamespace) -> Iterator[tuple[int, int]]:
    """Layer and its number inside its chunk, for every rank and chunk."""
    stages = config.pipeline_model_parallel_size
    chunks = config.virtual_pipeline_model_parallel_size if stages > 1 else None
    config.virtual_pipeline_model_parallel_size = chunks
    for rank in range(stages):
        for chunk in range(chunks) if chunks else (None,):
            offset = layer.get_transformer_layer_offset(config, chunk, rank)
            for number in range(block.get_num_layers_to_build(config, chunk, rank)):
                yield offset + number, number


# Real models ----------------------------------------------------------------------------------
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"num_layers": 2},
    "experts": {
        "num_layers": 3,
        "num_experts": 2,
        "moe_layer_freq": [0, 1, 1],
        "moe_ffn_hidden_size": 8,
        "moe_shared_expert_intermediate_size": 8,
        "mtp_num_layers": 1,
    },
    "latent attention": {"num_layers": 2, "multi_latent_attention": True},
    "latent attention, low-rank query": {
        "num_layers": 2,
        "multi_latent_attention": True,
        "q_lora_rank": 4,
    },
}
FILE = {
    "configs": {
        "bf16": {"training_recipe": {}},
        "nvfp4": {"training_recipe": {"fp4_quantization_recipe": "nvfp4"}},
        "mxfp8": {"training_recipe": {"fp8_quantization_recipe": "mxfp8"}},
    },
    "matchers": {
        "fc1": {"config": "nvfp4", "pattern": "*.linear_fc1", "enabled": True},
        "later": {"config": "bf16", "pattern": "*.linear_proj", "enabled": False},
        "second": {"config": "mxfp8", "pattern": "decoder.layers.1.*", "enabled": True},
        "projection": {"config": "bf16", "pattern": "*_proj", "enabled": True},
    },
}


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """A process group of one, which Megatron's layers want to see; on the CPU."""
    distributed = torch.distributed
    state = megatron("parallel_state")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    state.initialize_model_parallel(1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", lambda: "cpu")
        yield
    state.destroy_model_parallel()
    distributed.destroy_process_group()


def real_model(model: dict[str, Any], recipe: Any, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Builds a GPT model from local layers, which have the names of TE's.

    Returns the configuration that each linear module is given (``""`` without one). Attention
    itself is left out: it is no linear module, and the local one knows no latent attention.
    """
    config_module = megatron("transformer.transformer_config")
    specs = megatron("models.gpt.gpt_layer_specs")
    gpt = megatron("models.gpt.gpt_model")
    linear = megatron("tensor_parallel.layers")
    identity = megatron("transformer.identity_op")
    latent = megatron("transformer.multi_latent_attention")
    kinds = (linear.ColumnParallelLinear, linear.RowParallelLinear)
    patch.setattr(latent, "TELinear", type("TELinear", (), {}))
    for kind in kinds:
        patch.setattr(kind, "finish_init", finish_init, raising=False)
    is_latent = model.get("multi_latent_attention", False)
    kind = config_module.MLATransformerConfig if is_latent else config_module.TransformerConfig
    renamed = {"num_moe_experts" if key == "num_experts" else key: model[key] for key in model}
    if is_latent:
        renamed = {"rope_type": "rope", "kv_lora_rank": 4, "qk_head_dim": 4, **renamed}
        renamed |= {"q_lora_rank": model.get("q_lora_rank"), "v_head_dim": 4}
        renamed["qk_pos_emb_head_dim"] = 4
    config = kind(
        hidden_size=16,
        num_attention_heads=2,
        add_bias_linear=False,
        use_cpu_initialization=True,
        perform_initialization=False,
        quant_recipe=recipe,
        **renamed,
    )
    decoder = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    for spec in decoder.layer_specs:
        spec.submodules.self_attention.submodules.core_attention = identity.IdentityOp
    mtp = None
    if config.mtp_num_layers:
        mtp = specs.get_gpt_mtp_block_spec(config, decoder, use_transformer_engine=False)
    built = gpt.GPTModel(config, decoder, 32, 8, mtp_block_spec=mtp)
    return {
        name: module.given
        for name, module in built.named_modules()
        if isinstance(module, kinds) and name != "output_layer"
    }


def finish_init(module: Any, quantization_config: Any) -> None:
    """Stands in for the method of TE's layers: remembers the name of the configuration."""
    module.given = "" if quantization_config is None else quantization_config.config_key


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_real_model_has_these_modules_and_gives_them_these_configurations(
    model: dict[str, Any], one_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "te_precision.yaml"
    path.write_text(file_text(TePrecisionConfig.model_validate(FILE)))
    real = real_model(model, utils.load_quantization_recipe(str(path)), monkeypatch)

    ours = plan(model=model, training={"bf16": True, "te_precision_config": FILE})
    modules = model_modules(ours, effective(ours, Target.of(ours)))
    config = ours.training.te_precision_config
    assert modules is not None and config is not None
    found = {}
    for name in modules.full_names():
        matched = config.match(name)
        found[name] = matched[1].config if matched is not None else ""
    assert found == real


def test_only_linear_layers_of_te_are_given_configurations() -> None:
    """Read from the source: the classes themselves derive from TE's, which is not there."""
    tree = ast.parse(Path(str(engine.__file__)).read_text(encoding="utf-8"))
    reached = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and "finish_init" in [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    }
    assert reached == {"TELinear", "TELayerNormColumnParallelLinear", "TEGroupedLinear"}
