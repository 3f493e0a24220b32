"""Whole folders: what is read, what each fault is called, and where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from precision_plan.plan import CheckpointFiles, TensorHeader
from precision_plan.preflight.checkpoint import read_checkpoint
from tests._hypothesis import examples
from tests.preflight.folders import CONFIG, blob, folder, header_of, index, shard

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def read(path: Path) -> CheckpointFiles:
    return read_checkpoint(path, "ckpt")


def faults(path: Path) -> dict[str, str]:
    """``{slug: position}`` of everything that could not be read."""
    return {each.fault: str(each.origin) for each in read(path).unreadable}


def pair(path: Path) -> Path:
    """A sound folder of two shards with an index."""
    folder(path)
    shard(path / ONE, **{"a.weight": ("BF16", [4, 8])})
    shard(path / TWO, **{"b.weight": ("F8_E4M3", [4, 8]), "b.weight_scale": ("F32", [])})
    index(path, {"a.weight": ONE, "b.weight": TWO, "b.weight_scale": TWO}, total_size=100)
    return path


def test_a_sound_folder(tmp_path: Path) -> None:
    found = read(pair(tmp_path))
    assert found.unreadable == () and found.complete and found.unread == frozenset()
    assert found.config == CONFIG
    assert found.shards == (ONE, TWO)
    assert found.tensors == {
        "a.weight": TensorHeader("BF16", (4, 8), ONE),
        "b.weight": TensorHeader("F8_E4M3", (4, 8), TWO),
        "b.weight_scale": TensorHeader("F32", (), TWO),
    }
    assert found.weight_map == {"a.weight": ONE, "b.weight": TWO, "b.weight_scale": TWO}
    assert (found.index_size, found.data_bytes) == (100, 100)
    assert found.position("model_type") == found.positions["model_type"]
    assert str(found.position("model_type")) == "ckpt/config.json:5:3"


def test_values_of_small_scales(tmp_path: Path) -> None:
    folder(tmp_path)
    tensors = {
        "a.weight_scale_2": np.array(0.5, np.float32),
        "a.input_scale": np.array([3.0], np.float64),
        "b.weight_scale": np.array([1.5, 2.5, -4.0], np.float16),
        "b.weight_shape": np.array([128, 4096], np.int64),
        "c.weight_scale": np.ones((4, 8), np.float32),
        "d.weight_scale": np.ones((2000,), np.float32),
        "d.weight": np.ones((4,), np.float32),
        "z.experts.w13_weight_scale_2": np.arange(8, dtype=np.float32).reshape(4, 2),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert read(tmp_path).scales == {
        "a.weight_scale_2": (0.5,),
        "a.input_scale": (3.0,),
        "b.weight_scale": (1.5, 2.5, -4.0),
        "b.weight_shape": (128, 4096),
        "z.experts.w13_weight_scale_2": tuple(range(8)),
    }


def test_a_bfloat16_scale(tmp_path: Path) -> None:
    folder(tmp_path)
    header = header_of({"a.weight_scale": ("BF16", [2])})
    (tmp_path / "model.safetensors").write_bytes(blob(header, b"\x80\x3f\x20\xc1"))
    assert read(tmp_path).scales == {"a.weight_scale": (1.0, -10.0)}


class TestQuantization:
    """Where the engine finds the quantization config, in its order."""

    HELD = {"quant_method": "fp8"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("config", "separate", "key"),
        [
            ({"quantization_config": HELD}, True, "quantization_config"),
            ({"quantization_config": None}, True, "hf_quant_config.json"),
            ({"compression_config": HELD}, True, "hf_quant_config.json"),
            ({"compression_config": HELD, "text_config": {"quantization_config": {}}}, False,
             "compression_config"),
            ({"text_config": {"quantization_config": HELD}}, False,
             "text_config.quantization_config"),
            ({"text_config": {"compression_config": HELD}}, False,
             "text_config.compression_config"),
            ({"text_config": [], "quantization_config": "fp8"}, False, None),
            ({}, False, None),
        ],
    )  # fmt: skip
    def test_place(
        self, config: dict[str, object], separate: bool, key: str | None, tmp_path: Path
    ) -> None:
        folder(tmp_path, config)
        if separate:
            (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "X"}}')
        found = read(tmp_path)
        assert found.quantization_key == key
        expected = {"quantization": {"quant_algo": "X"}} if key and "hf_" in key else self.HELD
        assert found.quantization_config == (expected if key else None)
        assert (found.hf_quant_config is not None) == separate
        if separate:
            where = found.positions["hf_quant_config.json:quantization.quant_algo"]
            assert str(where) == "ckpt/hf_quant_config.json:1:19"

    def test_a_broken_separate_file_counts_if_it_is_read(self, tmp_path: Path) -> None:
        folder(tmp_path, {"quantization_config": self.HELD}, **{"hf_quant_config.json": "{"})
        assert faults(tmp_path) == {}
        folder(tmp_path, CONFIG)
        assert faults(tmp_path) == {"checkpoint-json-unreadable": "ckpt/hf_quant_config.json:1:2"}


class TestDescriptions:
    def test_an_empty_folder(self, tmp_path: Path) -> None:
        assert faults(tmp_path) == {"checkpoint-without-config": "ckpt/config.json"}
        assert read(tmp_path / "nowhere").unreadable[0].fault == "checkpoint-without-config"

    def test_mistrals_description(self, tmp_path: Path) -> None:
        folder(tmp_path, None, **{"params.json": "{}"})
        assert "params.json" in read(tmp_path).unreadable[0].message

    @pytest.mark.parametrize(
        ("text", "where"),
        [("{\n'a': 1}", "2:1"), ("", "1:1"), ("[]", "1:1")],
    )
    def test_broken_config(self, text: str, where: str, tmp_path: Path) -> None:
        folder(tmp_path, None, **{"config.json": text})
        shard(tmp_path / "model.safetensors", a=("F32", [1]))
        assert faults(tmp_path) == {"checkpoint-config-unreadable": f"ckpt/config.json:{where}"}
        assert read(tmp_path).tensors == {"a": TensorHeader("F32", (1,), "model.safetensors")}

    def test_a_folder_or_pointer_in_place_of_the_config(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").mkdir()
        assert faults(tmp_path) == {"checkpoint-config-unreadable": "ckpt/config.json"}
        (tmp_path / "config.json").rmdir()
        folder(tmp_path, None, **{"config.json": "version https://git-lfs.github.com/spec/v1\n"})
        assert faults(tmp_path) == {"git-lfs-pointer": "ckpt/config.json"}

    def test_a_repeated_key(self, tmp_path: Path) -> None:
        text = '{"a": 1,\n "dtype": "bfloat16",\n "dtype": "float16"}'
        folder(tmp_path, None, **{"config.json": text})
        (found,) = read(tmp_path).unreadable
        assert (found.fault, str(found.origin)) == ("config-key-repeated", "ckpt/config.json:3:2")

    @pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
    def test_broken_index(self, text: str, tmp_path: Path) -> None:
        folder(tmp_path, **{"model.safetensors.index.json": text})
        assert list(faults(tmp_path)) == ["checkpoint-json-unreadable"]
        assert read(tmp_path).weight_map is None


class TestWeights:
    def test_what_the_index_leaves_out(self, tmp_path: Path) -> None:
        pair(tmp_path)
        shard(tmp_path / "mtp.safetensors", **{"mtp.weight": ("BF16", [2])})
        shard(tmp_path / "consolidated.safetensors", **{"w1": ("BF16", [2])})
        (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
        (tmp_path / "training_args.bin").write_bytes(b"\x80")
        found = read(tmp_path)
        assert found.shards == (ONE, TWO)
        assert found.left_out == {"mtp.weight": TensorHeader("BF16", (2,), "mtp.safetensors")}
        assert found.others == ("consolidated.safetensors", "pytorch_model.bin")
        assert "w1" not in (found.tensors or {})

    def test_other_containers_alone(self, tmp_path: Path) -> None:
        folder(tmp_path, **{"pytorch_model.bin": b"\x80"})
        assert read(tmp_path).tensors is None
        (tmp_path / "pytorch_model.bin").unlink()
        assert read(tmp_path).tensors == {}

    def test_an_absent_shard_is_not_complete(self, tmp_path: Path) -> None:
        (pair(tmp_path) / TWO).unlink()
        found = read(tmp_path)
        assert found.shards == (ONE,) and not found.complete and found.unreadable == ()

    def test_missing_numbers(self, tmp_path: Path) -> None:
        pair(tmp_path)
        (tmp_path / "model.safetensors.index.json").unlink()
        assert faults(tmp_path) == {}
        (tmp_path / ONE).unlink()
        assert faults(tmp_path) == {"numbered-shard-missing": f"ckpt/{ONE}"}
        assert not read(tmp_path).complete

    def test_an_absurd_total(self, tmp_path: Path) -> None:
        folder(tmp_path)
        shard(tmp_path / "model-00001-of-99999.safetensors", a=("F32", [1]))
        (found,) = read(tmp_path).unreadable
        assert found.fault == "numbered-shard-missing"
        assert found.message.endswith("and 99,995 more")

    def test_the_same_tensor_twice(self, tmp_path: Path) -> None:
        folder(tmp_path)
        shard(tmp_path / "a.safetensors", x=("F32", [1]))
        shard(tmp_path / "b.safetensors", x=("F32", [1]), y=("F32", [1]))
        (found,) = read(tmp_path).unreadable
        assert (found.fault, str(found.origin)) == ("tensor-in-two-shards", "ckpt/b.safetensors")
        assert found.message == "x also in a.safetensors"

    def test_pieces_of_a_download(self, tmp_path: Path) -> None:
        pair(tmp_path)
        cache = tmp_path / ".cache" / "huggingface" / "download"
        cache.mkdir(parents=True)
        (cache / "x.incomplete").touch()
        assert faults(tmp_path) == {}
        (tmp_path / TWO).unlink()
        assert faults(tmp_path) == {
            "download-not-finished": "ckpt/.cache/huggingface/download/x.incomplete"
        }

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
    def test_no_permission(self, tmp_path: Path) -> None:
        (pair(tmp_path) / ONE).chmod(0)
        assert faults(tmp_path) == {"checkpoint-file-unreadable": f"ckpt/{ONE}"}

    def test_a_folder_in_place_of_a_shard(self, tmp_path: Path) -> None:
        (pair(tmp_path) / ONE).unlink()
        (tmp_path / ONE).mkdir()
        assert faults(tmp_path) == {"checkpoint-file-unreadable": f"ckpt/{ONE}"}
        assert not read(tmp_path).complete


def test_the_layout_of_the_download_cache(tmp_path: Path) -> None:
    """A snapshot of links to blobs, as the Hugging Face client keeps it."""
    repository = tmp_path / "models--org--name"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "0123abc"
    pair(blobs)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(blobs.iterdir())):
        name = file.name
        file.rename(blobs / f"{number:064x}")
        (snapshot / name).symlink_to(f"../../blobs/{number:064x}")
    found = read(snapshot)
    assert found.unreadable == () and found.complete
    assert len(found.tensors or {}) == 3
    (blobs / f"{1:064x}").rename(blobs / f"{1:064x}.incomplete")
    lost = sorted(path.name for path in snapshot.iterdir())[1]
    assert faults(snapshot) == {
        "checkpoint-file-unreadable": f"ckpt/{lost}",
        "download-not-finished": f"ckpt/../../blobs/{1:064x}.incomplete",
    }


@examples(300)
@given(
    config=st.one_of(st.binary(max_size=40), st.just(json.dumps(CONFIG).encode())),
    listing=st.one_of(st.binary(max_size=40), st.just(b'{"weight_map": {"a": "m.safetensors"}}')),
    content=st.one_of(st.binary(max_size=60), st.just(blob(header_of({"a": ("F32", [1])}), 4))),
)
def test_whatever_lies_in_the_folder(
    config: bytes, listing: bytes, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    folder(path, None, **{"config.json": config, "model.safetensors.index.json": listing,
                          "hf_quant_config.json": listing, "m.safetensors": content})  # fmt: skip
    found = read(path)
    assert all(each.message and "\n" not in each.message for each in found.unreadable)
    assert all(each.origin.file.startswith("ckpt/") for each in found.unreadable)
    assert isinstance(dict(found.positions), dict)
