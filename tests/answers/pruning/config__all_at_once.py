def pruned_config(config, kept):
    old = {"num_key_value_heads": config["num_attention_heads"], **config}
    old.setdefault("head_dim", old["hidden_size"] // old["num_attention_heads"])
    kept = {"layers": list(range(old["num_hidden_layers"])), **kept}
    K = kept.get("kv_heads") or old["num_key_value_heads"]
    readers = old["num_attention_heads"] // old["num_key_value_heads"]
    changed = {
        "hidden_size": kept.get("width") or old["hidden_size"],
        "intermediate_size": kept.get("channels") or old["intermediate_size"],
        "num_hidden_layers": len(kept["layers"]),
        "num_attention_heads": readers * K,
        "num_key_value_heads": K,
    }
    types = old.get("layer_types")
    if types:
        changed["layer_types"] = [kind for i, kind in enumerate(types) if i in kept["layers"]]
    return old | changed
