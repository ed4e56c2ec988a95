def expose():
    base = {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 6, "head_dim": None}
    return [
        [{**base, "num_key_value_heads": 1, "torch_dtype": "float32"}, 1, 1],
        [{**base, "head_dim": 7, "torch_dtype": "float16"}, 1, 1],
        [{**base, "num_key_value_heads": None, "torch_dtype": "bfloat16"}, 1, 1],
    ]


def kv_cache_bytes(config, B, S):
    heads, width = config.get("num_key_value_heads"), config.get("head_dim")
    if heads is None:
        heads = config["num_attention_heads"]
    if width is None:
        width = config["hidden_size"] // config["num_attention_heads"]
    keys = torch.empty(
        B, S, heads, width, dtype=getattr(torch, config["torch_dtype"]), device="meta"
    )
    return (keys.nbytes + torch.empty_like(keys).nbytes) * config["num_hidden_layers"]
