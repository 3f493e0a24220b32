"""Positions of keys, and the words for JSON that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_plan.plan import Origin
from precision_plan.plan.json_text import BrokenJson, Positions, keys, parse_object
from tests._hypothesis import examples

TEXT = """{
  "model_type": "qwen3",
  "list": [1, {"a": null}, [
     true]],
  "quantization_config": {"ignore": ["lm_head", "x\\"y"], "bits": 8}
}
"""


def test_every_key_and_element_has_its_place() -> None:
    positions = Positions(("", "c.json", TEXT), ("hf_quant_config.json:", "h.json", '{"a": 1}'))
    assert {key: (each.file, each.line, each.column) for key, each in positions.items()} == {
        "model_type": ("c.json", 2, 3),
        "list": ("c.json", 3, 3),
        "list.0": ("c.json", 3, 12),
        "list.1": ("c.json", 3, 15),
        "list.1.a": ("c.json", 3, 16),
        "list.2": ("c.json", 3, 28),
        "list.2.0": ("c.json", 4, 6),
        "quantization_config": ("c.json", 5, 3),
        "quantization_config.ignore": ("c.json", 5, 27),
        "quantization_config.ignore.0": ("c.json", 5, 38),
        "quantization_config.ignore.1": ("c.json", 5, 49),
        "quantization_config.bits": ("c.json", 5, 58),
        "hf_quant_config.json:a": ("h.json", 1, 2),
    }
    assert "nothing" not in positions and positions.get("nothing") is None
    assert len(positions) == 13


@pytest.mark.parametrize(
    ("data", "words", "place"),
    [
        (b"", "expecting value", (1, 1)),
        (b'{\n  "a": 1,\n}', "", (3, 1)),
        (b'{"a" 1}', "expecting ':' delimiter", (1, 6)),
        (b'{"a": 1}\n{}', "extra data", (2, 1)),
        (b"[1]", "not a JSON object", (1, 1)),
        (b"\xef\xbb\xbf{}", "unexpected UTF-8 BOM", (1, 1)),
        (b'{"a":\n"\xff"}', "byte 0xff is not UTF-8", (2, 0)),
        (b'{"a":' * 100_000, "nested too deeply", (0, 0)),
        (b'{"a": ' + b"1" * 5000 + b"}", "too many digits", (0, 0)),
    ],
    ids=range(9),
)
def test_what_is_no_object(data: bytes, words: str, place: tuple[int, int]) -> None:
    with pytest.raises(BrokenJson) as caught:
        parse_object(data)
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == place


def test_a_key_that_stands_twice() -> None:
    parsed = parse_object(b'{"a": {"b": 1, "b": 2}, "c": 3, "a": {"b": 4}}')
    assert parsed.value == {"a": {"b": 4}, "c": 3} and parsed.repeats
    assert [key.path for key in keys(parsed.text) if key.repeated] == ["a.b", "a"]
    assert not parse_object(b'{"a": {"b": 1}, "b": 1}').repeats
    assert not parse_object(b'{"a": 1, "a": 2}', repeats=False).repeats


names = st.text(max_size=4)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=12,
)


def paths(value: Any, path: str = "") -> list[str]:
    """Every dotted path in a value, by plain recursion."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = [(str(number), item) for number, item in enumerate(value)]
    else:
        return []
    found = []
    for name, item in items:
        found += [path + name, *paths(item, f"{path}{name}.")]
    return found


@examples(500)
@given(
    value=st.dictionaries(names, values, max_size=4),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
)
def test_positions_point_at_the_text_of_their_key(
    value: dict[str, Any], indent: int | None, ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    if "\ud800" <= max(text, default="") <= "\udfff":
        return
    found = list(keys(text))
    assert [key.path for key in found] == paths(value)
    lines = text.split("\n")
    positions = Positions(("", "f", text))
    for key in found:
        assert not key.repeated
        where = positions[key.path]
        assert where.file == "f"
        rest = lines[where.line - 1][where.column - 1 :]
        if rest.startswith('"'):
            word, _ = json.JSONDecoder().raw_decode(rest)
            assert key.path.endswith(word) or key.path.rpartition(".")[2].isdecimal()
        else:
            assert key.path.rpartition(".")[2].isdecimal()


@examples(500)
@given(data=st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    try:
        parsed = parse_object(data)
    except BrokenJson as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert parsed.value == json.loads(data)
        assert list(keys(parsed.text)) is not None


def test_an_origin_counts_from_one() -> None:
    assert Positions(("", "f", '{"a": 1}'))["a"] == Origin("f", 1, 2)
