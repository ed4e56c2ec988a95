"""Published directories of quantized weights: packed here number by number as their tools pack
them, loaded, and held against an ordinary directory of the weights that they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from twophase.cli.main import build as build_app
from twophase.models import hugging_face
from twophase.models.linear import linears
from twophase.models.quantize.linear import QuantizedLinear

Tensors = dict[str, torch.Tensor]
GROUP = 16
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
LAYER = {
    "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32),
    "self_attn.v_proj": (16, 32),
    "self_attn.o_proj": (32, 32),
    "mlp.gate_proj": (48, 32),
    "mlp.up_proj": (48, 32),
    "mlp.down_proj": (32, 48),
}
AWQ_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ's order_map: place j of a word holds this output


def words(codes: list[list[int]], bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Rows of codes as int32 words along the row, place 0 in the lowest bits."""
    each = 32 // bits
    order = order or tuple(range(each))
    packed = []
    for row in codes:
        line = []
        for start in range(0, len(row), each):
            value = sum(row[start + order[j]] << bits * j for j in range(each))
            line.append(value - 2**32 if value >= 2**31 else value)
        packed.append(line)
    return torch.tensor(packed, dtype=torch.int32)


def gptq(O: int, I: int, bits: int = 4, minus_one: bool = True) -> tuple[Tensors, torch.Tensor]:
    """The tensors of a layer, and its weights [O, I]."""
    groups = I // GROUP
    codes = torch.randint(0, 2**bits, (I, O))
    zeros = torch.randint(1, 2**bits, (groups, O))
    scales = (torch.rand(groups, O) * 0.05 + 0.01).half()
    g_idx = torch.arange(I) // GROUP
    parts = {
        "qweight": words(codes.T.tolist(), bits).T.contiguous(),
        "qzeros": words((zeros - int(minus_one)).tolist(), bits),
        "scales": scales,
        "g_idx": g_idx.int(),
    }
    return parts, ((codes - zeros[g_idx]) * scales.float()[g_idx]).T.contiguous()


def awq(O: int, I: int) -> tuple[Tensors, torch.Tensor]:
    groups = I // GROUP
    codes, zeros = torch.randint(0, 16, (I, O)), torch.randint(0, 16, (groups, O))
    scales = (torch.rand(groups, O) * 0.05 + 0.01).half()
    parts = {
        "qweight": words(codes.tolist(), 4, AWQ_PLACES),
        "qzeros": words(zeros.tolist(), 4, AWQ_PLACES),
        "scales": scales,
    }
    g = torch.arange(I) // GROUP
    return parts, ((codes - zeros[g]) * scales.float()[g]).T.contiguous()


def int8(O: int, I: int) -> tuple[Tensors, torch.Tensor]:
    codes, largest = torch.randint(-127, 128, (O, I)), torch.rand(O) + 0.1
    parts = {
        "weight": codes.to(torch.int8),
        "SCB": largest,
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    return parts, codes * largest[:, None] / 127


Make = Callable[[int, int], tuple[Tensors, torch.Tensor]]
WAYS: dict[str, tuple[Make, dict[str, Any]]] = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}),
    "gptq, 8 bits": (
        lambda O, I: gptq(O, I, 8),
        {"quant_method": "gptq", "bits": 8, "group_size": GROUP},
    ),
    "gptq_v2": (
        lambda O, I: gptq(O, I, 4, minus_one=False),
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": GROUP,
            "checkpoint_format": "gptq_v2",
        },
    ),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "int8": (int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}


def write(folder: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def directories(tmp_path: Path, way: str, **more: Any) -> tuple[Path, Path]:
    """A published directory, and an ordinary one of the weights that it stands for."""
    torch.manual_seed(3)
    make, how = WAYS[way]
    plain: Tensors = {
        "model.embed_tokens.weight": torch.randn(40, 32),
        "model.norm.weight": torch.rand(32) + 0.5,
        "lm_head.weight": torch.randn(40, 32),
    }
    packed: Tensors = {}
    meant: Tensors = {}
    for layer in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plain[f"model.layers.{layer}.{norm}.weight"] = torch.rand(32) + 0.5
        for name, (O, I) in LAYER.items():
            key = f"model.layers.{layer}.{name}"
            parts, meant[f"{key}.weight"] = make(O, I)
            packed |= {f"{key}.{part}": value for part, value in parts.items()}
    config = CONFIG | more
    one = write(tmp_path / "packed", config | {"quantization_config": how}, plain | packed)
    return one, write(tmp_path / "meant", config, plain | meant)


TOKENS = torch.tensor([[1, 5, 9, 30, 2, 17]])


@pytest.mark.parametrize("way", WAYS)
def test_a_published_directory_says_what_its_weights_say(way: str, tmp_path: Path) -> None:
    packed, meant = directories(tmp_path, way)
    found, wanted = hugging_face.load(packed), hugging_face.load(meant)
    kept = [name for name, it in found.named_modules() if isinstance(it, QuantizedLinear)]
    assert len(kept) == 2 * len(LAYER)
    for name, linear in linears(wanted):
        if name in kept:
            decoded = found.get_submodule(name).stored.decode()  # type: ignore[union-attr, operator]
            torch.testing.assert_close(decoded, linear.weight, rtol=1e-6, atol=1e-7)
    with torch.inference_mode():
        torch.testing.assert_close(found(TOKENS), wanted(TOKENS), rtol=1e-4, atol=1e-4)


def test_a_bias_of_zeros_that_the_model_does_not_have_is_left_aside(tmp_path: Path) -> None:
    packed, meant = directories(tmp_path, "gptq")
    key = "model.layers.0.self_attn.q_proj.bias"
    tensors = load_file(packed / "model.safetensors") | {key: torch.zeros(32)}
    save_file(tensors, packed / "model.safetensors")
    with torch.inference_mode():
        found, wanted = (hugging_face.load(folder)(TOKENS) for folder in (packed, meant))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    save_file(tensors | {key: torch.ones(32)}, packed / "model.safetensors")
    with pytest.raises(ValueError, match="with a bias, but by config"):
        hugging_face.load(packed)


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    packed, _ = directories(tmp_path, "awq", tie_word_embeddings=True)
    tensors = load_file(packed / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, packed / "model.safetensors")
    model = hugging_face.load(packed, dtype=torch.bfloat16)
    assert model.lm_head.weight is model.embed_tokens.weight
    assert model.embed_tokens.weight.dtype == torch.bfloat16


def test_shards_are_read_as_one_file_is(tmp_path: Path) -> None:
    packed, meant = directories(tmp_path, "gptq")
    tensors = load_file(packed / "model.safetensors")
    (packed / "model.safetensors").unlink()
    halves = {"a.safetensors": list(tensors)[::2], "b.safetensors": list(tensors)[1::2]}
    for name, keys in halves.items():
        save_file({key: tensors[key] for key in keys}, packed / name)
    index = {"weight_map": {key: name for name, keys in halves.items() for key in keys}}
    (packed / "model.safetensors.index.json").write_text(json.dumps(index))
    with torch.inference_mode():
        found, wanted = (hugging_face.load(folder)(TOKENS) for folder in (packed, meant))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    (packed / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"names the shard b\.safetensors"):
        hugging_face.load(packed)


Q = "model.layers.0.self_attn.q_proj"
REFUSED: dict[str, tuple[str, Callable[[Tensors], None], dict[str, Any], str]] = {
    "3 bits": ("gptq", lambda t: None, {"bits": 3}, "not read here"),
    "another method": ("gptq", lambda t: None, {"quant_method": "fp8"}, "not read here"),
    "awq's gemv": ("awq", lambda t: None, {"version": "gemv"}, "not read here"),
    "4 bits of bitsandbytes": ("int8", lambda t: None, {"load_in_8bit": False}, "not read here"),
    "another group size": ("awq", lambda t: None, {"group_size": 32}, "config.json says"),
    "no scales": ("gptq", lambda t: t.pop(f"{Q}.scales"), {}, "q_proj has no scales"),
    "no layer": ("gptq", lambda t: t.pop(f"{Q}.qweight"), {}, "q_proj"),
    "no norm": ("awq", lambda t: t.pop("model.norm.weight"), {}, "do not hold norm.weight"),
    "one too many": (
        "awq",
        lambda t: t.update({"model.layers.0.extra.weight": torch.ones(2)}),
        {},
        "has no place",
    ),
    "ordered by size": (
        "gptq",
        lambda t: t.update({f"{Q}.g_idx": torch.arange(32).flip(0).int() // GROUP}),
        {},
        "desc_act",
    ),
    "rows cut off": (
        "int8",
        lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"][:8], f"{Q}.SCB": t[f"{Q}.SCB"][:8]}),
        {},
        "must be",
    ),
    "an infinite scale": (
        "awq",
        lambda t: t.update({f"{Q}.scales": t[f"{Q}.scales"] * torch.inf}),
        {},
        "NaN or infinite",
    ),
    "another dtype": (
        "int8",
        lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"].short()}),
        {},
        "int8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    way, change, how, says = REFUSED[name]
    packed, _ = directories(tmp_path, way)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= how
    (packed / "config.json").write_text(json.dumps(config))
    tensors = load_file(packed / "model.safetensors")
    change(tensors)
    save_file({k: v.contiguous() for k, v in tensors.items()}, packed / "model.safetensors")
    with pytest.raises(ValueError, match=says):
        hugging_face.load(packed)


@pytest.mark.parametrize("path", ["plain", "compiled"])
def test_the_command_says_what_the_weights_say(path: str, tmp_path: Path) -> None:
    """Both directories without a tokenizer, by tokens."""
    said = []
    for folder in directories(tmp_path, "gptq"):
        asked = f"--checkpoint {folder} --token-ids --tokens 6 --temperature 0 --path {path}"
        run = CliRunner().invoke(
            build_app(["generate"]), ["generate", "1 5 9", *asked.split(), "--json"]
        )
        assert run.exit_code == 0, run.output
        said.append(json.loads(run.stdout)["text"])
    assert said[0] == said[1]


def test_layers_of_quantized_weights_are_loaded_together(tmp_path: Path) -> None:
    packed, _ = directories(tmp_path, "awq")
    with pytest.raises(ValueError, match="all layers are loaded, or none"):
        hugging_face.load(packed, layers=[0])
