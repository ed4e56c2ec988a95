def pruned_config(config, kept):
    new = dict(config)
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    new.setdefault("head_dim", config["hidden_size"] // heads)
    new["num_key_value_heads"] = kept.get("kv_heads", kv_heads)
    new["num_attention_heads"] = heads // kv_heads * new["num_key_value_heads"]
    for short, name in (("width", "hidden_size"), ("channels", "intermediate_size")):
        if short in kept:
            new[name] = kept[short]
    if "layers" in kept:
        new["num_hidden_layers"] = len(kept["layers"])
        if "layer_types" in new:
            new["layer_types"] = [new["layer_types"][i] for i in kept["layers"]]
    return new
