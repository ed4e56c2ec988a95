def expose():
    llama3 = {
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
    }
    qwen3 = {**llama3, "hidden_size": 4096, "head_dim": 128, "torch_dtype": "float16"}
    return [(llama3, 1, 8192), (qwen3, 2, 100)]


def kv_cache_bytes(config, B, S):
    N = config["num_attention_heads"]
    K = config.get("num_key_value_heads") or N
    H = config.get("head_dim") or config["hidden_size"] // N
    width = {"float32": 4, "float16": 2, "bfloat16": 2}[config["torch_dtype"]]
    return 2 * B * S * config["num_hidden_layers"] * K * H * width
