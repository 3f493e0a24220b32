"""vLLM as the facts know it at one release, in the shapes of the real sources."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from precision_plan.drift.variables_against import default_at
from precision_plan.facts.env_vars import env_vars
from precision_plan.facts.vllm import (
    EngineArg,
    architectures,
    engine_args_at,
    kv_cache_dtypes,
    quant_names,
)
from precision_plan.facts.vllm_backends import backend_names
from precision_plan.facts.vllm_env_names import declared_names
from precision_plan.facts.vllm_flags import flag_names
from precision_plan.facts.vllm_quant import ct_schemes, quant_methods
from tests.drift.trees import Files

ENGINE = "vllm/engine/arg_utils.py"
CLI = "vllm/entrypoints/openai/cli_args.py"
CONFIG = "vllm/config/model.py"
CACHE = "vllm/config/cache.py"
TRANSFER = "vllm/config/weight_transfer.py"
SHORTHANDS = "vllm/config/quantization.py"
METHODS = "vllm/model_executor/layers/quantization/__init__.py"
CLASSES = "vllm/model_executor/layers/quantization/classes.py"
REGISTRY = "vllm/v1/attention/backends/registry.py"
BACKENDS = "vllm/v1/attention/backends/classes.py"
SCHEMES = "vllm/model_executor/layers/quantization/compressed_tensors/schemes/all_schemes.py"
ROCM = "vllm/platforms/rocm.py"
ENVS = "vllm/envs.py"
MODELS = "vllm/model_executor/models/registry.py"
HYBRID = "vllm/model_executor/models/hybrid.py"
INFO = "vllm-{version}.dist-info/METADATA"

_TORCH = {"float16": "half"}


@lru_cache
def vllm(version: str) -> Files:
    """A tree without drift; copy it to change it."""
    return {
        INFO.format(version=version): f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n",
        ENGINE: _engine(version),
        CLI: _cli(version),
        CONFIG: _config(version),
        CACHE: f"from typing import Literal\nCacheDType = {_literal(kv_cache_dtypes(version))}\n",
        TRANSFER: _transfer(version),
        SHORTHANDS: _shorthands(version),
        METHODS: _methods(version),
        CLASSES: _classes(version),
        SCHEMES: _schemes(version),
        REGISTRY: _registry(version),
        BACKENDS: _backends(version),
        ROCM: _rocm(version),
        ENVS: _envs(version),
        MODELS: _models(),
        HYBRID: _hybrid(),
    }


def _literal(names: Any) -> str:
    return f"Literal[{', '.join(map(repr, names))}]"


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _engine(version: str) -> str:
    lines = [
        "import argparse",
        "from dataclasses import dataclass",
        "from vllm.config.model import ModelConfig",
        "from vllm.config.weight_transfer import WeightTransferConfig",
        "def get_kwargs(cls):",
        "    return copy.deepcopy(_compute_kwargs(cls))",
        "@dataclass",
        "class EngineArgs:",
        "    model: str = ModelConfig.model",
        "    @staticmethod",
        "    def add_cli_args(parser):",
        "        model_kwargs = get_kwargs(ModelConfig)",
        "        model_group = parser.add_argument_group(title='ModelConfig')",
    ]
    known = engine_args_at(version).values()
    for flag, argument in {argument.flag: argument for argument in known}.items():
        aliases = [name for name in argument.aliases if name in flag_names(version)]
        names = ", ".join(map(repr, (flag, *aliases)))
        lines.append(f"        model_group.add_argument({names}, **model_kwargs['{_dest(flag)}'])")
    lines += [
        "        return parser",
        "@dataclass",
        "class AsyncEngineArgs(EngineArgs):",
        "    @staticmethod",
        "    def add_cli_args(parser, async_args_only=False):",
        "        if not async_args_only:",
        "            parser = EngineArgs.add_cli_args(parser)",
        "        return parser",
    ]
    return "\n".join(lines) + "\n"


def _cli(version: str) -> str:
    known = engine_args_at(version).values()
    described = {name for argument in known for name in (argument.flag, *argument.aliases)}
    others = sorted(flag_names(version) - described)
    fields = [name for name in others if name.startswith("--")]
    lines = [
        "from vllm.config.utils import config",
        "from vllm.engine.arg_utils import AsyncEngineArgs",
        "@config",
        "class BaseFrontendArgs:",
        "    @classmethod",
        "    def _customize_cli_kwargs(cls, frontend_kwargs):",
        "        return frontend_kwargs",
        "    @classmethod",
        "    def add_cli_args(cls, parser):",
        "        from vllm.engine.arg_utils import get_kwargs",
        "        frontend_kwargs = get_kwargs(cls)",
        "        frontend_kwargs = cls._customize_cli_kwargs(frontend_kwargs)",
        "        frontend_group = parser.add_argument_group(title='Frontend')",
        "        for key, value in frontend_kwargs.items():",
        "            extra_flags = value.pop('flags', [])",
        "            flag = f\"--{key.replace('_', '-')}\"",
        "            frontend_group.add_argument(*extra_flags, flag, **value)",
        "        return parser",
        "@config",
        "class FrontendArgs(BaseFrontendArgs):",
        *(f"    {_dest(name)}: str | None = None" for name in fields),
        "    @classmethod",
        "    def _customize_cli_kwargs(cls, frontend_kwargs):",
        "        return super()._customize_cli_kwargs(frontend_kwargs)",
        "def make_arg_parser(parser):",
        *(f"    parser.add_argument('{name}')" for name in others if name not in fields),
        "    parser = FrontendArgs.add_cli_args(parser)",
        "    parser = AsyncEngineArgs.add_cli_args(parser)",
        "    return parser",
    ]
    return "\n".join(lines) + "\n"


def _annotation(argument: EngineArg) -> str:
    if argument.kind == "boolean":
        return "bool"
    if argument.kind == "json":
        return "dict[str, Any] | None"
    if argument.kind == "json_key":
        return "WeightTransferConfig | None" if "transfer" in argument.flag else "dict[str, Any]"
    if argument.kind == "list":
        return f"list[{argument.type}] | None"
    inner = argument.type or "str"
    if argument.choices is not None:
        inner = _literal(argument.choices)
    return f"{inner} | None" if argument.default is None else inner


def _config(version: str) -> str:
    lines = [
        "from dataclasses import field",
        "from typing import Any, Literal",
        "from pydantic import Field",
        "from vllm.config.utils import config",
        "from vllm.config.weight_transfer import WeightTransferConfig",
        "ModelDType = Literal['auto', 'half', 'float16', 'bfloat16', 'float', 'float32']",
        f"MambaDType = {_literal(_choices('rollout.mamba_ssm_cache_dtype', version))}",
        "_FLOAT16_NOT_SUPPORTED_MODELS = {",
        *(
            f"    {name!r}: 'Numerical instability.',"
            for row in architectures()
            if not row.float16
            for name in row.model_types
        ),
        "}",
        "@config",
        "class ModelConfig:",
    ]
    seen = set()
    for argument in engine_args_at(version).values():
        if argument.flag in seen:
            continue
        seen.add(argument.flag)
        default = repr({} if "overrides" in argument.flag else argument.default)
        if argument.kind == "json_key" and "transfer" in argument.flag:
            default = "None"
        if argument.kind == "list" and argument.default is not None:
            default = "field(default_factory=list)"
        if argument.kind == "value" and argument.type == "float":
            default = f"Field({default}, gt=0)"
        lines.append(f"    {_dest(argument.flag)}: {_annotation(argument)} = {default}")
    return "\n".join(lines) + "\n"


def _choices(field: str, version: str) -> tuple[str, ...]:
    return engine_args_at(version)[field].choices or ()


def _transfer(version: str) -> str:
    argument = engine_args_at(version).get("rollout.weight_transfer_backend")
    choices = (argument.choices if argument else None) or ("nccl",)
    return (
        "from typing import Literal\n"
        "from vllm.config.utils import config\n"
        "@config\n"
        "class WeightTransferConfig:\n"
        f"    backend: {_literal(choices)} | str = 'nccl'\n"
    )


def _shorthands(version: str) -> str:
    names = [
        name
        for name, row in quant_names().items()
        if row.kind == "online" and name != "online" and version in row.versions
    ]
    rows = "".join(f"    {name!r}: QuantizationConfigArgs(),\n" for name in names)
    return f"class QuantizationConfigArgs:\n    pass\n_ONLINE_SHORTHANDS = {{\n{rows}}}\n"


def _named(version: str) -> list[str]:
    return [name for name, row in quant_names().items() if version in row.versions]


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_")) + "Config"


def _methods(version: str) -> str:
    names = _named(version)
    rows = [row for row in quant_names().values() if version in row.versions]
    deprecated = [row.name for row in rows if row.deprecated and version in row.deprecated]
    imports = ", ".join(_class(name) for name in names)
    lines = [
        "from typing import Literal, get_args",
        f"QuantizationMethods = {_literal(names)}",
        "QUANTIZATION_METHODS: list[str] = list(get_args(QuantizationMethods))",
        f"DEPRECATED_QUANTIZATION_METHODS = {deprecated!r}",
        "def get_quantization_config(quantization):",
        f"    from .classes import {imports}",
        "    method_to_config = {",
        *(f"        {name!r}: {_class(name)}," for name in names),
        "    }",
        "    return method_to_config[quantization]",
    ]
    return "\n".join(lines) + "\n"


def _classes(version: str) -> str:
    lines = ["import torch", "class QuantizationConfig:", "    pass"]
    for name in _named(version):
        method = quant_methods().get(quant_names()[name].resolves_at(version))
        least = method.min_capability(version) if method else (8, 0)
        assert least is not None
        dtypes = method.act_dtypes if method else ("float16",)
        listed = ", ".join(f"torch.{_TORCH.get(dtype, dtype)}" for dtype in dtypes)
        lines += [
            f"class {_class(name)}(QuantizationConfig):",
            "    def get_name(self):",
            f"        return {name!r}",
            "    def get_supported_act_dtypes(self):",
            f"        return [{listed}]",
            "    @classmethod",
            "    def get_min_capability(cls):",
            f"        return {least[0] * 10 + least[1]}",
        ]
    return "\n".join(lines) + "\n"


def _schemes(version: str) -> str:
    lines = ["class CompressedTensorsScheme:", "    pass"]
    for row in ct_schemes().values():
        if version in row.versions:
            lines += [
                f"class {row.cls}(CompressedTensorsScheme):",
                "    @classmethod",
                "    def get_min_capability(cls):",
                f"        return {row.min_cc[0] * 10 + row.min_cc[1]}",
            ]
    return "\n".join(lines) + "\n"


def _backend_class(name: str) -> str:
    return f"{name.title().replace('_', '')}Backend"


def _registry(version: str) -> str:
    lines = ["from enum import Enum, EnumMeta", "class _Meta(EnumMeta):", "    pass"]
    lines.append("class AttentionBackendEnum(Enum, metaclass=_Meta):")
    for name, row in backend_names().items():
        if version in row.versions:
            path = f"vllm.v1.attention.backends.classes.{_backend_class(name)}"
            lines.append(f"    {name} = {path!r}" if row.declares else f"    {name} = None")
    return "\n".join(lines) + "\n"


def _backends(version: str) -> str:
    lines = ["from typing import ClassVar", "import torch", "class AttentionBackend:", "    pass"]
    for name, row in backend_names().items():
        kv, dtypes = row.declared(version, "kv"), row.declared(version, "dtypes")
        if kv is not None and dtypes is not None:
            listed = ", ".join(f"torch.{dtype}" for dtype in dtypes)
            lines += [
                f"class {_backend_class(name)}(AttentionBackend):",
                f"    supported_dtypes: ClassVar[list[torch.dtype]] = [{listed}]",
                f"    supported_kv_cache_dtypes: ClassVar[list[str]] = {list(kv)!r}",
            ]
    return "\n".join(lines) + "\n"


def _rocm(version: str) -> str:
    rows = quant_names().values()
    names = [row.name for row in rows if row.rocm is not None and version in row.rocm]
    return f"class RocmPlatform:\n    supported_quantization: list[str] = {names!r}\n"


def _recurrent() -> list[str]:
    return [row.prefix for row in architectures() if row.recurrent_state]


def _models() -> str:
    rows = [f"    '{name}ForCausalLM': ('hybrid', '{name}Model')," for name in _recurrent()]
    rows += ["    'LlamaForCausalLM': ('hybrid', 'LlamaModel'),"]
    return "\n".join(["_TEXT_GENERATION_MODELS = {", *rows, "}"]) + "\n"


def _hybrid() -> str:
    lines = ["from .interfaces import HasInnerState, IsHybrid", "class Base(IsHybrid):", "    pass"]
    for number, name in enumerate(_recurrent()):
        base = "nn.Module, HasInnerState" if number % 2 else "Base"
        lines += [f"class {name}Model({base}):", "    pass"]
    return "\n".join([*lines, "class LlamaModel(nn.Module):", "    pass"]) + "\n"


def _envs(version: str) -> str:
    declared = declared_names(version)
    others = []
    lines = ["import os", "environment_variables = {"]
    for name in sorted(declared):
        known = env_vars().get(name)
        default = default_at(known, version) if known else None
        text = "" if default is None else f", {default!r}"
        lines.append(f"    {name!r}: lambda: os.getenv({name!r}{text}),")
    lines.append("}")
    for name, known in env_vars().items():
        here = "vllm" in known.read_by and name not in declared and known.platforms is None
        if here and known.exists_in("vllm", version):
            others.append(f"os.getenv({name!r})")
    return "\n".join((*lines, *others)) + "\n"
