def choose(model, chip, B, formats):
    best = None
    for kind in formats:
        rate = chip["flops_per_s"].get(kind["arithmetic"])
        read = model["n_params"] * kind["bits_per_weight"] / 8
        read += model["other_bytes"] + B * model["cache_bytes"]
        if rate is None or read > chip["memory_bytes"] or kind["loss"] > model["most_loss"]:
            continue
        seconds = max(read / chip["bytes_per_s"], 2 * B * model["n_params"] / rate)
        if best is None or seconds < best[0]:
            best = (seconds, kind["name"])
    return best[1] if best else None
