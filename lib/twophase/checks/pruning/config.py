"""pruning-config: the config of a pruned model, such that other programs load it."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Config = dict[str, Any]


def reference(config: Config, kept: dict[str, Any]) -> Config:
    """The right answer."""
    N = config["num_attention_heads"]
    K = config.get("num_key_value_heads", N)
    layers = kept.get("layers", range(config["num_hidden_layers"]))
    kv_heads = kept.get("kv_heads", K)
    new = {
        **config,
        "hidden_size": kept.get("width", config["hidden_size"]),
        "intermediate_size": kept.get("channels", config["intermediate_size"]),
        "num_hidden_layers": len(layers),
        "num_attention_heads": kv_heads * (N // K),
        "num_key_value_heads": kv_heads,
        "head_dim": config.get("head_dim", config["hidden_size"] // N),
    }
    if "layer_types" in config:
        new["layer_types"] = [config["layer_types"][i] for i in layers]
    return new


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


HEAD = '"head_dim": config.get("head_dim", config["hidden_size"] // N),'
_add(
    "head_width_left_implied",
    {HEAD: '**({"head_dim": config["head_dim"]} if "head_dim" in config else {}),'},
    "configs without head_dim",
    "Without head_dim a reader divides hidden_size by the heads, and both have changed: write it"
    " down.",
)
_add(
    "head_width_of_the_new_width",
    {HEAD: '"head_dim": kept.get("width", config["hidden_size"]) // (kv_heads * (N // K)),'},
    "hidden_size // num_attention_heads",
    "A head is as wide as before: it is hidden_size // num_attention_heads of the old model, or its"
    " head_dim.",
)
_add(
    "stated_head_width_ignored",
    {HEAD: '"head_dim": config["hidden_size"] // N,'},
    "hidden_size // num_attention_heads",
    "The config states head_dim: heads need not share out hidden_size.",
)
_add(
    "query_heads_stay",
    {'"num_attention_heads": kv_heads * (N // K)': '"num_attention_heads": N'},
    "plausible",
    "With a KV head go the query heads that read it: as many stay as KV heads times N // K.",
)
_add(
    "as_many_query_as_kv_heads",
    {'"num_attention_heads": kv_heads * (N // K)': '"num_attention_heads": kv_heads'},
    "plausible",
    "Each KV head stays with all N // K query heads that read it.",
)
_add(
    "kv_heads_left_out",
    {
        '"num_key_value_heads": kv_heads,': (
            '**({"num_key_value_heads": kv_heads} if "num_key_value_heads" in config else {}),'
        )
    },
    "plausible",
    "Write num_key_value_heads also if the old config had none: it means as many as query heads.",
)
_add(
    "first_layer_types",
    {'[config["layer_types"][i] for i in layers]': 'config["layer_types"][: len(layers)]'},
    "plausible",
    "You keep the first types. The layers that stay bring theirs along.",
)
_add(
    "layer_types_left",
    {'[config["layer_types"][i] for i in layers]': 'list(config["layer_types"])'},
    "plausible",
    "layer_types has an entry for each layer: it loses those of the layers that go.",
)
_add(
    "only_what_is_known",
    {"**config,\n        ": ""},
    "plausible",
    "You drop keys that you do not know. All others stay as they are.",
)

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
}
OLD = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "tie_word_embeddings": True,
}
WIDE = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_scaling": None,
}
TYPES = ["sliding_attention", "sliding_attention", "full_attention"]
MIXED = {**WIDE, "num_hidden_layers": 6, "layer_types": TYPES * 2, "sliding_window": 512}
MUCH = {**LLAMA, **MIXED, "tie_word_embeddings": True}  # every entry that another one has
OTHERS = {
    "model_type": "mistral",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "num_key_value_heads": 16,
    "vocab_size": 32000,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "head_dim": 64,
    "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    "layer_types": TYPES[::-1] * 2,
    "sliding_window": 1024,
}


def _fresh(rng: random.Random) -> tuple[Config, dict[str, Any]]:
    K, G, H, L = rng.randrange(2, 9), rng.randrange(1, 5), 2 * rng.randrange(4, 40), 8
    config: Config = {
        "hidden_size": K * G * H,
        "intermediate_size": rng.randrange(100, 5000),
        "num_hidden_layers": L,
        "num_attention_heads": K * G,
        "num_key_value_heads": K,
        "layer_types": [rng.choice(TYPES) for _ in range(L)],
    }
    kept: dict[str, Any] = {
        "layers": sorted(rng.sample(range(L), rng.randrange(2, L))),
        "kv_heads": rng.randrange(1, K),
        "channels": config["intermediate_size"] // 2,
        "width": K * G * H // 2,
    }
    for name in rng.sample(sorted(kept), rng.randrange(3)):
        del kept[name]
    return config, kept


def cases(rng: random.Random) -> list[Case]:
    """Each thing that may go, alone and together; configs that leave out what is implied, and ones
    that state it."""
    made: list[tuple[str, Config, dict[str, Any]]] = [
        ("width of a Llama 3 8B", LLAMA, {"width": 3072}),
        ("its channels", LLAMA, {"channels": 9216}),
        ("its KV heads", LLAMA, {"kv_heads": 4}),
        ("its layers", LLAMA, {"layers": list(range(16))}),
        (
            "everything at once",
            LLAMA,
            {"width": 3072, "channels": 9216, "kv_heads": 2, "layers": [0, 1, 31]},
        ),
        ("as many KV as query heads, not said", OLD, {"kv_heads": 9}),
        ("the same, and half the width", OLD, {"kv_heads": 6, "width": 384}),
        ("heads wider than their share", WIDE, {"width": 2048}),
        ("the same, fewer heads", WIDE, {"kv_heads": 5}),
        # 15 / 22 * 22 and 90 * (7 / 10), as floats, are a little less than 15 and 63
        (
            "15 of 22 heads",
            {**OLD, "hidden_size": 704, "num_attention_heads": 22},
            {"kv_heads": 15},
        ),
        (
            "7 of 10 KV heads, nine readers each",
            {**WIDE, "num_attention_heads": 90, "num_key_value_heads": 10},
            {"kv_heads": 7},
        ),
        ("types of layers", MIXED, {"layers": [0, 2, 5]}),
        # of the same length: whoever keeps results by that is wrong here
        ("types, three other layers", MIXED, {"layers": [0, 1, 3]}),
        ("types, the first layer only", MIXED, {"layers": [0]}),
        ("types, the last layers only", MIXED, {"layers": [3, 4, 5], "width": 1280}),
        ("types, all layers stay", MIXED, {"channels": 100}),
        ("one layer, one KV head", MIXED, {"layers": [5], "kv_heads": 1}),
        ("half the KV heads, every entry there", MUCH, {"kv_heads": 4}),
        # whoever keeps results by some of the entries is wrong here
        *(
            (f"the same, another {name}", {**MUCH, name: other}, {"kv_heads": 4})
            for name, other in OTHERS.items()
        ),
        ("KV heads of a deeper model", {**LLAMA, "num_hidden_layers": 33}, {"kv_heads": 4}),
        ("nothing goes", LLAMA, {}),
        ("nothing goes, much was implied", OLD, {}),
    ]
    fresh = [(f"fresh {i + 1}", *_fresh(rng)) for i in range(6)]
    return [
        Case(name, (config, kept), public=not name.startswith("fresh"))
        for name, config, kept in [*made, *fresh]
    ]


EXERCISE = Exercise(
    id="pruning-config",
    title="A config that loads",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("pruned_config",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Which entries did the old config leave to be computed from others that now change?",
        (
            "head_dim was hidden_size // num_attention_heads if it was not stated: it stays that"
            " number, and must be stated from now on."
        ),
        (
            "Query heads: KV heads that stay times N // K. layer_types: those of the layers that"
            " stay. All else: copied."
        ),
    ),
    recall=(
        "A model's width was cut from 4096 to 3072, its 32 heads stay. What must its config say?",
        "head_dim = 128: else a reader would take 3072 / 32 = 96.",
    ),
)
