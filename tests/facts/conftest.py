"""Upstream packages that the facts are held against, where they are installed."""

import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "precision_plan" / "facts" / "data"


@pytest.fixture(scope="session")
def megatron_classes() -> Mapping[str, type]:
    """megatron-core 0.16.1's configuration classes by name.

    Transformer Engine's Python half cannot be imported through megatron-core without its native
    library, so it is hidden while megatron-core is imported.
    """
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_te(name)}
    sys.modules["transformer_engine"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            core = pytest.importorskip("megatron.core")
            if not core.__version__.startswith("0.16.1"):
                pytest.skip(f"written for megatron-core 0.16.1, found {core.__version__}")
            config = importlib.import_module("megatron.core.transformer.transformer_config")
            optimizer = importlib.import_module("megatron.core.optimizer")
            distributed = importlib.import_module("megatron.core.distributed")
    finally:
        sys.modules.pop("transformer_engine", None)
        sys.modules.update(hidden)
    parallel = importlib.import_module("megatron.core.model_parallel_config")
    classes = (
        parallel.ModelParallelConfig,
        config.TransformerConfig,
        config.MLATransformerConfig,
        optimizer.OptimizerConfig,
        distributed.DistributedDataParallelConfig,
        distributed.TorchFullyShardedDataParallelConfig,
    )
    return {cls.__name__: cls for cls in classes}


def _is_te(name: str) -> bool:
    return name == "transformer_engine" or name.startswith("transformer_engine.")


@pytest.fixture(scope="session")
def te_recipe_module() -> object:
    """The recipe module of an installed Transformer Engine, without its native library."""
    os.environ.setdefault("NVTE_PROJECT_BUILDING", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformer_engine.common.recipe")
