def expose():
    base = {
        "num_hidden_layers": np.int64(3),
        "hidden_size": 96,
        "num_attention_heads": 6,
        "torch_dtype": "bfloat16",
    }
    return (
        [{**base, "num_key_value_heads": np.int64(3)}, 1, 7],
        (base | {"head_dim": 5, "torch_dtype": "float32"}, np.int32(2), 1),
        [{**base, "num_key_value_heads": None, "head_dim": None}, 1_000_000, 1_000_000],
    )


def kv_cache_bytes(config, B, S):
    given = {key: value for key, value in config.items() if value is not None}
    given.setdefault("num_key_value_heads", given["num_attention_heads"])
    given.setdefault("head_dim", given["hidden_size"] // given["num_attention_heads"])
    bits = int(given["torch_dtype"][-2:])
    values = math.prod(
        given[key] for key in ("num_hidden_layers", "num_key_value_heads", "head_dim")
    )
    return 2 * B * S * values * bits // 8
