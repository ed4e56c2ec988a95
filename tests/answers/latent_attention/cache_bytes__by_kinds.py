def cache_bytes(config, bytes_per_value):
    get = lambda name, default: default if config.get(name) is None else config[name]
    heads = config["num_attention_heads"]
    kept = get("kv_lora_rank", 0)
    if kept:
        numbers = kept + config["qk_rope_head_dim"]
    else:
        width = get("head_dim", config["hidden_size"] // heads)
        numbers = width * get("num_key_value_heads", heads) * 2
    return numbers * bytes_per_value * config["num_hidden_layers"]
