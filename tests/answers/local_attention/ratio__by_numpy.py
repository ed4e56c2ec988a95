def choose(w):
    g, window, bits = (
        np.array([o[name] for o in w["options"]])
        for name in ("n_global", "window", "bits_per_byte")
    )
    per_position = 2 * w["K"] * w["H"] * w["bytes_per_value"]
    cache = per_position * (g * w["S"] + (w["L"] - g) * np.minimum(window, w["S"]))
    needed = w["weight_bytes"] + w["B"] * cache
    field = np.where(g > 0, w["S"], 1 + w["L"] * (window - 1))
    bits[needed > w["memory_bytes"]] = np.inf
    bits[needed / w["bytes_per_s"] > w["step_limit_s"]] = np.inf
    bits[field < w["must_reach"]] = np.inf
    return int(bits.argmin())
