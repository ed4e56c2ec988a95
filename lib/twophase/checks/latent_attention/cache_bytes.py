"""latent_attention-cache_bytes: what one cached token costs, by the config of any model."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Config = dict[str, Any]


def reference(config: Config, bytes_per_value: float) -> float:
    """The right answer."""
    N = config["num_attention_heads"]
    if config.get("kv_lora_rank") is not None:
        per_layer: int = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        K = config.get("num_key_value_heads")
        H = config.get("head_dim")
        K = N if K is None else K
        H = config["hidden_size"] // N if H is None else H
        per_layer = 2 * K * H
    L: int = config["num_hidden_layers"]
    return L * per_layer * bytes_per_value


wrong.add(
    "latent_twice",
    replaced(reference, {'config["kv_lora_rank"] + config': '2 * config["kv_lora_rank"] + config'}),
    "the factor 2 of keys and values, carried over",
    "You counted the latent twice: it is one vector that keys and values are both unfolded from.",
)
wrong.add(
    "both_twice",
    replaced(
        reference,
        {
            'config["kv_lora_rank"] + config["qk_rope_head_dim"]': (
                '2 * (config["kv_lora_rank"] + config["qk_rope_head_dim"])'
            )
        },
    ),
    "KV calculators with one factor 2 for every model",
    "You doubled what is cached, as for a key and a value: a latent and a rotated key are all.",
)
wrong.add(
    "rotated_key_left_out",
    replaced(reference, {' + config["qk_rope_head_dim"]': ""}),
    "lecture notes: “reduces N·H from 16384 to C = 512”",
    "The rotated key is missing: qk_rope_head_dim numbers per token and layer, beside the latent.",
)
wrong.add(
    "rotated_key_of_each_head",
    replaced(reference, {' + config["qk_rope_head_dim"]': ' + N * config["qk_rope_head_dim"]'}),
    "plausible",
    "You stored a rotated key for every head: all heads share one.",
)
wrong.add(
    "unfolded",
    replaced(
        reference,
        {
            'config["kv_lora_rank"] + config["qk_rope_head_dim"]': (
                'N * (config["qk_nope_head_dim"] + config["qk_rope_head_dim"]'
                ' + config["v_head_dim"])'
            )
        },
    ),
    "the cache of DeepSeek-V2's first code on Hugging Face, which stored unfolded keys and values",
    "These are the unfolded keys and values. What has to be kept is what they are unfolded from.",
)
wrong.add(
    "heads_of_the_config",
    replaced(reference, {'config.get("kv_lora_rank") is not None': "False"}),
    "num_key_value_heads of DeepSeek's config, which is 128",
    "This model has kv_lora_rank: it caches latents, and num_key_value_heads says nothing about"
    " them.",
)
wrong.add(
    "query_heads",
    replaced(reference, {"K = N if K is None else K": "K = N"}),
    "KV calculators: LMCache #688",
    "You counted the query heads where there are num_key_value_heads.",
)
wrong.add(
    "one_head_where_none_is_named",
    replaced(reference, {"K = N if K is None": "K = 1 if K is None"}),
    "config.get('num_key_value_heads', 1)",
    "Where num_key_value_heads is missing or None, every query head has its own keys.",
)
wrong.add(
    "width_shared_out",
    replaced(reference, {" if H is None else H": ""}),
    "head_dim = hidden_size // num_attention_heads, in many a calculator",
    "You computed the head width although head_dim is given: the two need not agree.",
)
wrong.add(
    "one_layer",
    replaced(reference, {"L * per_layer": "per_layer"}),
    "formulas per token and layer",
    "This is the cache of one layer: every layer has its own.",
)
wrong.add(
    "always_two_bytes",
    replaced(reference, {"per_layer * bytes_per_value": "per_layer * 2"}),
    "plausible",
    "You took two bytes per number whatever the format: use bytes_per_value.",
)


def _heads(L: int, D: int, N: int, **others: Any) -> Config:
    return {"num_hidden_layers": L, "hidden_size": D, "num_attention_heads": N, **others}


def _latent(L: int, D: int, N: int, R: int, rope: int, nope: int, v: int, K: int) -> Config:
    return _heads(
        L,
        D,
        N,
        num_key_value_heads=K,
        kv_lora_rank=R,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=v,
    )


def cases(rng: random.Random) -> list[Case]:
    """Both kinds of model; every key present, missing and None; every width of number; widths that
    are no quotient; sizes past every model; fresh ones."""
    many = edges.past(1024)
    configs = [
        ("three layers of latents, R=10, a rotated key of 4", _latent(3, 40, 5, 10, 4, 6, 7, 5)),
        ("DeepSeek-V2", _latent(60, 5120, 128, 512, 64, 128, 128, 128)),
        ("DeepSeek-V3", _latent(61, 7168, 128, 512, 64, 128, 128, 128)),
        ("kv_lora_rank is None", _heads(2, 24, 4, num_key_value_heads=2, kv_lora_rank=None)),
        (
            "kv_lora_rank is None, other widths of latents are there",
            {**_latent(2, 24, 4, 0, 4, 6, 8, 2), "kv_lora_rank": None},
        ),
        ("one latent layer, one head", _latent(1, 9, 1, 5, 2, 3, 4, 1)),
        ("latents, one KV head named", _latent(4, 50, 6, 12, 2, 8, 8, 1)),
        ("heads and KV heads, no head_dim", _heads(4, 48, 6, num_key_value_heads=2)),
        ("nothing but heads", _heads(4, 48, 6)),
        (
            "KV heads and head_dim are None",
            _heads(5, 60, 6, num_key_value_heads=None, head_dim=None),
        ),
        (
            "head_dim unlike hidden_size / heads",
            _heads(7, 40, 4, num_key_value_heads=2, head_dim=16),
        ),
        ("head_dim, no KV heads", _heads(3, 40, 4, head_dim=12)),
        ("one KV head", _heads(6, 48, 4, num_key_value_heads=1, head_dim=20)),
        ("more of each than models have", _heads(many, 8 * many, 8, num_key_value_heads=4)),
        ("more latent layers and wider", _latent(many, 4096, 64, 5 * many, many, 128, 128, 64)),
        (
            "more than 32 bits hold",
            _heads(many, 2 * many**2, many, num_key_value_heads=many, head_dim=many),
        ),
        # none of these other keys says whether a model keeps latents
        (
            "latents beside a head_dim",
            {**_latent(61, 7168, 128, 512, 64, 128, 128, 128), "head_dim": 64},
        ),
        (
            "latents, no q_lora_rank",
            {**_latent(27, 2048, 16, 512, 64, 128, 128, 16), "q_lora_rank": None},
        ),
        (
            "latents, a q_lora_rank as well",
            {
                **_latent(62, 2560, 40, 256, 32, 64, 64, 40),
                "q_lora_rank": 768,
                "model_type": "minicpm3",
            },
        ),
        (
            "heads, a model_type of DeepSeek",
            _heads(28, 2048, 16, num_key_value_heads=16, model_type="deepseek"),
        ),
    ]
    fresh = []
    for i in range(4):
        N, K = 12, rng.choice((2, 3, 4, 6))
        H = 2 * rng.randrange(5, 70)
        L, R = rng.randrange(2, 90), rng.randrange(100, 900)
        made = (
            _latent(L, 12 * H, N, R, 2 * rng.randrange(4, 60), H, H + 3, N)
            if i % 2
            else _heads(L, 12 * rng.randrange(20, 40), N, num_key_value_heads=K, head_dim=H)
        )
        fresh.append(Case(f"fresh {i + 1}", (made, (1, 2, 4, 0.5)[i]), public=i < 2))
    by_name = dict(configs)
    changed = {
        "heads and KV heads, no head_dim": {
            "num_hidden_layers": 5,
            "hidden_size": 60,
            "num_attention_heads": 8,
            "num_key_value_heads": 3,
        },
        "head_dim unlike hidden_size / heads": {"head_dim": 12},
        configs[0][0]: {"kv_lora_rank": 11, "qk_rope_head_dim": 6},
    }
    widths = [2, 2, 1, 4, 2, 0.5, 2, 2, 4, 1, 2, 0.5, 4, 2, 1, 2, 2, 2, 2, 2]
    return [
        *(Case(f"{n}, {b} bytes", (c, b)) for (n, c), b in zip(configs, widths, strict=True)),
        # whoever keeps results by some of the entries is wrong here
        *(
            Case(f"{name} {but}, 2 bytes", (config, 2))
            for name, others in changed.items()
            for but, config in edges.one_changed(by_name[name], **others)
        ),
        *(Case(f"{configs[0][0]}, {b} bytes", (configs[0][1], b)) for b in (4, 1, 0.5)),
        *(Case(f"{configs[10][0]}, {b} bytes", (configs[10][1], b)) for b in (4, 1, 0.5)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="latent_attention-cache_bytes",
    title="What a token costs, in any model",
    kind="formula",
    points=3,
    minutes=12,
    entries=("cache_bytes",),
    cases=cases,
    reference=reference,
    misconceptions=tuple(wrong),
    hints=(
        "First ask which of the two kinds it is: does the config have a kv_lora_rank?",
        (
            "With latents a layer keeps kv_lora_rank + qk_rope_head_dim numbers per token, for all"
            " heads together. Without, a key and a value for each KV head."
        ),
        (
            "config.get(name) is None both where the key is missing and where it says None. KV"
            " heads then are num_attention_heads, the width hidden_size // num_attention_heads."
        ),
    ),
    recall=(
        "Which numbers does a layer of DeepSeek-V2 cache per token, and how many times?",
        "One latent of width R and one rotated key of width rope_dim, once: no factor 2, no N.",
    ),
)
