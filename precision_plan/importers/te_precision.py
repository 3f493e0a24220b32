"""Reads the file of ``--te-precision-config-file``: typed content, and where what is wrong.

The file is read as a recipe is (bounded, nothing in it is executed). Fields of the findings are
those of ``training.te_precision_config``, where a recipe holds the same content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from precision_plan.compose.composition import Composition
from precision_plan.compose.document import Document, parse_document, read_document
from precision_plan.compose.reading import Unreadable, display_path
from precision_plan.compose.schema import build_plan
from precision_plan.plan import Diagnostic, Fix, Origin
from precision_plan.plan.codes import compose_diagnostic, is_broken_input
from precision_plan.plan.layer_map import INLINE
from precision_plan.plan.te_precision import TeMatcher, TePrecisionConfig

_LAYER = "te_precision_config_file"
_CORE = "NVIDIA/Megatron-LM@core_v0.16.1:megatron/core"
_CHECKS = {
    "configs": f"{_CORE}/extensions/transformer_engine.py:176-181",
    "matchers": f"{_CORE}/quantization/quant_config.py:154",
}
_READ = tuple(TePrecisionConfig.model_fields)
_READ_OF_A_MATCHER = tuple(TeMatcher.model_fields)


@dataclass(frozen=True, slots=True)
class PrecisionFile:
    """Content of one file.

    ``config`` is ``None`` if it cannot be read; what is refused is left out of it and reported in
    ``diagnostics``. ``origins`` maps plan fields to positions in the file.
    """

    config: TePrecisionConfig | None
    origins: Mapping[str, Origin] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()


def read_precision_file(path: Path) -> PrecisionFile:
    """Read a file; an unusable one gives no content and a finding that says why."""
    return _content(read_document(path, display_path(path)))


def parse_precision_file(text: str, shown: str) -> PrecisionFile:
    """Read the text of a file; ``shown`` is its name in messages."""
    try:
        document = parse_document(text, Path(shown), shown)
    except Unreadable as error:
        return PrecisionFile(None, diagnostics=(error.diagnostic,))
    return _content(document)


def _content(document: Document) -> PrecisionFile:
    if document.empty:
        origin = document.origin()
        message = "the file holds nothing; Megatron expects configs and matchers"
        return PrecisionFile(None, diagnostics=(compose_diagnostic("PP011", message, origin),))
    if any(map(is_broken_input, document.problems)):
        return PrecisionFile(None, diagnostics=document.problems)
    unread: list[Diagnostic] = []
    data = _known(document, unread)
    origins = {f"{INLINE}.{key}": document.origin(key, _LAYER) for key in document.marks}
    origins[INLINE] = origins["training"] = document.origin("", _LAYER)
    built = build_plan(
        Composition(
            name=document.file,
            data={"training": {"te_precision_config": data}},
            origins=origins,
            texts={f"{INLINE}.{key}": text for key, text in document.texts.items()},
        )
    )
    config = built.plan.training.te_precision_config
    missing = () if config is None else _missing(config, data, origins)
    return PrecisionFile(
        config, origins, (*document.problems, *unread, *built.diagnostics, *missing)
    )


def _known(document: Document, unread: list[Diagnostic]) -> dict[str, Any]:
    """The keys that Megatron reads. It passes over others, at the top and in matchers."""
    data = dict(document.data)
    for key in [key for key in data if key not in _READ]:
        unread.append(_not_read(document, str(key), _READ))
        del data[key]
    matchers = data.get("matchers")
    if isinstance(matchers, dict):
        data["matchers"] = {
            name: _known_of(document, f"matchers.{name}", matcher, unread)
            for name, matcher in matchers.items()
        }
    return data


def _known_of(document: Document, path: str, matcher: Any, unread: list[Diagnostic]) -> Any:
    if not isinstance(matcher, dict):
        return matcher
    for key in matcher:
        if key not in _READ_OF_A_MATCHER:
            unread.append(_not_read(document, f"{path}.{key}", _READ_OF_A_MATCHER))
    return {key: value for key, value in matcher.items() if key in _READ_OF_A_MATCHER}


def _not_read(document: Document, key: str, known: tuple[str, ...]) -> Diagnostic:
    found = compose_diagnostic(
        "PP002",
        f"Megatron does not read {key}",
        document.origin(key, _LAYER),
        field=f"{INLINE}.{key}",
        fix=(Fix(f"known here: {', '.join(known)}"),),
    )
    return replace(found, severity="warning")


def _missing(
    config: TePrecisionConfig, data: Mapping[str, Any], origins: Mapping[str, Origin]
) -> Iterator[Diagnostic]:
    """Keys with one possible value that a recipe may leave out, and a file may not."""
    needed = [("configs", name, "transformer_engine_config_type") for name in config.used()]
    needed += [("matchers", name, "type") for name, _ in config.active()]
    for group, name, key in needed:
        if key in data[group][name]:
            continue
        value = "glob" if group == "matchers" else "TEQuantizationParams"
        field = f"{INLINE}.{group}.{name}"
        yield compose_diagnostic(
            "PP003",
            f"{group}.{name} lacks {key}, which Megatron demands",
            origins[field],
            field=f"{field}.{key}",
            fix=(Fix(f"{key}: {value}"),),
            source=(_CHECKS[group],),
            stage="build",
        )
