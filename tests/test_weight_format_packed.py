"""Quantized checkpoints of Model Optimizer and compressed-tensors: what their configs say of the
weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.theory.catalog import hardware
from twophase.theory.hardware import usual_compute
from twophase.theory.weight_format import read_attention, read_dtype, read_groups

INTEGERS = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": INTEGERS}},
    "ignore": ["lm_head", "re:.*self_attn.*"],
}
QWEN = {
    "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "vocab_size": 1000,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "weights"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (PACKED, "int4"),
        (PACKED | {"format": "mxfp4-pack-quantized"}, "fp4"),
        (PACKED | {"format": "nvfp4-pack-quantized"}, "nvfp4"),
        (PACKED | {"format": "float-quantized"}, "fp8"),
    ],
)
def test_formats_are_those_that_the_config_names(how: dict[str, Any], weights: str) -> None:
    assert read_dtype({"quantization_config": how}) == weights


def test_groups_and_what_is_left_wide_are_read() -> None:
    config = {"hidden_size": 1024, "quantization_config": PACKED}
    assert read_groups(config) == (32, 0)
    assert read_attention(config) == "bf16"
    assert read_attention({"quantization_config": PACKED | {"ignore": ["lm_head"]}}) is None


@pytest.mark.parametrize(
    "how",
    [
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        PACKED | {"config_groups": {}},
        PACKED | {"config_groups": PACKED["config_groups"] | {"group_1": {"weights": INTEGERS}}},  # type: ignore[operator]
        PACKED | {"config_groups": {"group_0": {"weights": INTEGERS | {"type": "float"}}}},
    ],
)
def test_mixtures_of_formats_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="quantized in a way that is unknown"):
        read_dtype({"quantization_config": how})


def test_nvfp4_is_multiplied_as_fp4_where_the_chip_can() -> None:
    assert usual_compute(hardware("b200"), "nvfp4") == "fp4"
    assert usual_compute(hardware("h100"), "nvfp4") == "bf16"


def test_a_file_beside_the_config_says_how_it_is_quantized(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    asked = ["plan", "--config", str(tmp_path), "--json", "--hardware", "b200"]

    def weights() -> str:
        found = json.loads(CliRunner().invoke(build(asked), asked).output)
        return f"{found['workload']['weights']} {found['workload']['compute']}"

    assert weights() == "bf16 bf16"
    quantization = {"quantization": {"quant_algo": "NVFP4"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantization))
    assert weights() == "nvfp4 fp4"
