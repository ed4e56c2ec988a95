def cache_bytes(config, bytes_per_value):
    def known(name):
        return name in config and config[name] is not None

    if known("kv_lora_rank"):
        tensors = [(config["kv_lora_rank"],), (config["qk_rope_head_dim"],)]
    else:
        K = config["num_key_value_heads" if known("num_key_value_heads") else "num_attention_heads"]
        if known("head_dim"):
            H = config["head_dim"]
        else:
            H = config["hidden_size"] // config["num_attention_heads"]
        tensors = [(K, H), (K, H)]
    each = np.array([math.prod(shape) for shape in tensors], dtype=np.int64)
    return float(each.sum()) * bytes_per_value * config["num_hidden_layers"]
