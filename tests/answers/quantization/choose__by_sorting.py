def choose(model, chip, B, formats):
    def n_bytes(kind):
        quantized = model["n_params"] * kind["bits_per_weight"] / 8
        return quantized + model["other_bytes"] + B * model["cache_bytes"]

    def seconds(kind):
        flops = 2 * B * model["n_params"]
        rate = chip["flops_per_s"][kind["arithmetic"]]
        return max(n_bytes(kind) / chip["bytes_per_s"], flops / rate)

    possible = [k for k in formats if k["loss"] <= model["most_loss"]]
    possible = [k for k in possible if k["arithmetic"] in chip["flops_per_s"]]
    possible = [k for k in possible if n_bytes(k) <= chip["memory_bytes"]]
    return sorted(possible, key=seconds)[0]["name"] if possible else None
