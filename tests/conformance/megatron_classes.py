"""megatron-core's config classes on a machine without Transformer Engine and without a GPU.

megatron-core is imported as on a machine without TE. Where a constructor asks for TE itself, three
edges are stood in for, and nothing else:

* the version of TE, which the classes compare with the least one that a feature needs;
* the parameters of its ``FusedAdam``, which ``OptimizerConfig`` inspects: they are read from the
  installed TE's own file;
* the fused kernels for permutation and rotary embeddings, of which ``TransformerConfig`` asks only
  whether they are there.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

torch = pytest.importorskip("torch")
try:
    TE_VERSION = importlib.metadata.version("transformer-engine")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("transformer-engine is not installed", allow_module_level=True)
CLASSES = {
    "TransformerConfig": "megatron.core.transformer.transformer_config",
    "MLATransformerConfig": "megatron.core.transformer.transformer_config",
    "OptimizerConfig": "megatron.core.optimizer.optimizer_config",
    "AdamOptimizerConfig": "megatron.core.optimizer.optimizer_config",
    "SGDOptimizerConfig": "megatron.core.optimizer.optimizer_config",
    "DistributedDataParallelConfig": "megatron.core.distributed",
}
_PERMUTATION = (
    "fused_permute",
    "fused_permute_with_probs",
    "fused_sort_chunks_by_index",
    "fused_sort_chunks_by_index_with_probs",
    "fused_unpermute",
)
_ROTARY = ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd")
_KERNELS = {
    "megatron.core.transformer.moe.moe_utils": (_PERMUTATION, "2.1.0"),
    "megatron.core.models.common.embeddings.rope_utils": (_ROTARY, "1.4.0"),
}
"""Where TransformerConfig looks for fused kernels, and the TE that brought them."""


@contextlib.contextmanager
def _modules(replaced: Mapping[str, Any]) -> Iterator[None]:
    before = {name: module for name, module in sys.modules.items() if _is_te(name)}
    for name in before:
        del sys.modules[name]
    sys.modules.update(replaced)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_te(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_te(name: str) -> bool:
    return name == "transformer_engine" or name.startswith("transformer_engine.")


@lru_cache
def _imported(name: str) -> types.ModuleType:
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed")
    with _modules({"transformer_engine": None}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def megatron_class(name: str) -> type[Any]:
    """One of :data:`CLASSES`, or a skip where megatron-core is not installed."""
    return getattr(_imported(CLASSES[name]), name)  # type: ignore[no-any-return]


def te_folder() -> Path:
    """Folder of the installed TE, which is not imported."""
    files = importlib.metadata.files("transformer-engine") or ()
    init = next(file for file in files if str(file) == "transformer_engine/__init__.py")
    return Path(str(init.locate())).parent


@lru_cache
def _fused_adam() -> type[Any]:
    """A class with the parameters of the installed TE's ``FusedAdam.__init__``."""
    path = te_folder() / "pytorch" / "optimizers" / "fused_adam.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kind = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "FusedAdam"
    )
    init = next(
        node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    names = [argument.arg for argument in (*init.args.args, *init.args.kwonlyargs)][1:]
    parameters = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
    return type("FusedAdam", (), {"__signature__": inspect.Signature(parameters)})


def _te_edges(version: str) -> dict[str, types.ModuleType]:
    package = types.ModuleType("transformer_engine")
    package.__version__ = version  # type: ignore[attr-defined]
    pytorch = types.ModuleType("transformer_engine.pytorch")
    optimizers = types.ModuleType("transformer_engine.pytorch.optimizers")
    optimizers.FusedAdam = _fused_adam()  # type: ignore[attr-defined]
    return {module.__name__: module for module in (package, pytorch, optimizers)}


@contextlib.contextmanager
def transformer_engine(version: str = TE_VERSION) -> Iterator[None]:
    """megatron-core as it finds itself beside one version of TE."""
    kernels = [(_imported(name), *names) for name, names in _KERNELS.items()]
    with (
        _modules(_te_edges(version)),
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("ignore")
        patch.setattr(_imported("megatron.core.utils"), "_te_version", Version(version))
        for module, names, least in kernels:
            kernel = object() if Version(version) >= Version(least) else None
            for name in names:
                patch.setattr(module, name, kernel, raising=False)
        yield


def construct(name: str, keywords: Mapping[str, Any], te_version: str = TE_VERSION) -> Any:
    """Build one class from lowered settings, its ``__post_init__`` checks included."""
    kind = megatron_class(name)
    unknown = set(keywords) - {field.name for field in dataclasses.fields(kind)}
    assert not unknown, f"{name} has no {sorted(unknown)}"
    with transformer_engine(te_version):
        return kind(**{key: real(key, value) for key, value in keywords.items()})


def real(key: str, value: Any) -> Any:
    """A lowered value as the constructor takes it: dtypes, enum members and functions."""
    if key.endswith("_dtype") and isinstance(getattr(torch, str(value), None), torch.dtype):
        return getattr(torch, value)
    if key == "attention_backend":
        enums = importlib.import_module("megatron.core.transformer.enums")
        return enums.AttnBackend[value]
    if key == "activation_func":
        return getattr(torch.nn.functional, value)
    return value
