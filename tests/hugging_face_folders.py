"""Small Hugging Face directories for the tests: models that transformers saves, tokenizers of both
common kinds."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from twophase.models import hugging_face

TEXTS = [
    "The cat sat on the mat, and the other cat sat on the first one.",
    "def read_lines(path):\n    with open(path) as file:\n        return file.read()\n",
    "naïve café, 東京 and 京都, smörgåsbord, Ελλάδα, 👩‍🔬 and 🧪.",
] * 3  # fmt: skip
V = 400

DENSE: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # large, so that greedy text is not one token forever
}
LATENT: dict[str, Any] = DENSE | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 14,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 8,
    "v_head_dim": 7,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "first_k_dense_replace": 1,
}
LATENT.pop("head_dim")
SIZES: dict[str, dict[str, Any]] = {
    "llama": DENSE,
    "mistral": DENSE | {"sliding_window": 6},
    "mixtral": DENSE | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {key: value for key, value in DENSE.items() if key != "head_dim"},
    "qwen3": DENSE,
    "qwen3_moe": DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12},
    "gemma": DENSE,
    "gemma2": DENSE | {"sliding_window": 6},
    "gemma3_text": (
        DENSE | {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
    ),
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT | {"n_group": 4, "topk_group": 2},
    "glm4_moe": (
        DENSE
        | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
        | {"head_dim": 12}
    ),
    "stablelm": {key: value for key, value in DENSE.items() if key != "head_dim"},
    "starcoder2": {key: value for key, value in DENSE.items() if key != "head_dim"},
}


def build(family: str, **more: Any) -> Any:
    """A random model of a family as transformers knows it, its plain implementation, in fp32."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    config = AutoConfig.for_model(
        family, **(SIZES[family] | {"eos_token_id": None, "pad_token_id": None} | more)
    )
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return AutoModelForCausalLM.from_config(config, **plain).eval().requires_grad_(False)


def build_with_eyes() -> Any:
    """Gemma 3 as it is published: a text model and one that sees."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, SiglipVisionConfig

    torch.manual_seed(7)
    eyes = SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    text = SIZES["gemma3_text"] | {
        "eos_token_id": None,
        "pad_token_id": None,
        "model_type": "gemma3_text",
    }
    config = Gemma3Config(text_config=text, vision_config=eyes, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval().requires_grad_(False)
    model.lm_head.weight.mul_(
        0.1
    )  # tied: with large embeddings it would say the last token forever
    return model


def byte_level() -> Tokenizer:
    """As Llama 3, Qwen and DeepSeek have it: merges of bytes. A special token begins each text."""
    rules = Tokenizer(models.BPE())
    rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rules.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|begin|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=V, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    rules.train_from_iterator(TEXTS, trainer)
    begin = [("<|begin|>", rules.token_to_id("<|begin|>"))]
    rules.post_processor = processors.TemplateProcessing("<|begin|> $A", special_tokens=begin)
    return rules


def sentence_piece() -> Tokenizer:
    """As Llama 2, Mistral and Gemma have it: spaces are letters, and a character without a token is
    its bytes."""
    words = ["▁the", "▁cat", "▁on", "th", "he", "▁t", "▁c", "at", "▁o", "▁th"]
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{i:02X}>" for i in range(256)),
        "▁",
        *"abcdefghijklmnopqrstuvwxyz.,()\n",
        *words,
    ]
    merges = [
        ("▁", "t"),
        ("▁t", "he"),
        ("h", "e"),
        ("t", "h"),
        ("a", "t"),
        ("▁", "c"),
        ("▁c", "at"),
        ("▁", "o"),
        ("▁o", "n"),
    ]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    rules = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    rules.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    rules.decoder = decoders.Sequence(steps)
    rules.add_special_tokens(["<s>", "</s>"])
    rules.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", vocab["<s>"])]
    )
    return rules


def save(
    model: Any, folder: Path, rules: Tokenizer | None = None, max_shard_size: str = "30KB"
) -> Path:
    """Write a model of transformers, in shards unless they are large, and a tokenizer."""
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if rules is not None:
        rules.save(str(folder / "tokenizer.json"))
    return folder


def change_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    found = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def refusal(config: Any) -> str:
    """Our sentence about the content of a config.json; empty if it is taken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hugging_face.read_config(config)
        except ValueError as error:
            return str(error)
    return ""
