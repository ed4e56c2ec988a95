def choose(model, chip, B, n_chips):
    L, D, E, k = (model[x] for x in ("L", "D", "E", "k"))
    width, cache = model["bytes_per_param"], B * model["cache_bytes"] / n_chips
    touched = E * (1 - (1 - k / E) ** B)
    best = None
    for copies in range(1, n_chips + 1):
        if n_chips % copies:
            continue
        dense = copies * model["dense_params"]
        stored = (dense + E * model["expert_params"]) * width / n_chips + cache
        if stored > chip["memory_bytes"]:
            continue
        read = (dense + touched * model["expert_params"]) * width / n_chips + cache
        g = n_chips / copies
        sent = 2 * L * 2 * (g - 1) / g * B / copies * D * 2
        sent += 2 * L * B / n_chips * k * D * 2 * (n_chips - 1) / n_chips
        seconds = read / chip["bytes_per_s"] + sent / chip["link_bytes_per_s"]
        if best is None or seconds < best[1]:
            best = (copies, seconds)
    return best
