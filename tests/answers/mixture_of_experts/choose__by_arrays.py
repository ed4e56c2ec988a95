def choose(model, chip, B, n_chips):
    m, n = model, n_chips
    copies = np.array([c for c in range(1, n + 1) if n % c == 0], dtype=float)
    per_chip = m["bytes_per_param"] / n
    touched = m["E"] * (1 - (1 - m["k"] / m["E"]) ** B)
    dense, caches = copies * m["dense_params"] * per_chip, B * m["cache_bytes"] / n
    fits = dense + m["E"] * m["expert_params"] * per_chip + caches <= chip["memory_bytes"]
    if not fits.any():
        return None
    seconds = (dense + touched * m["expert_params"] * per_chip + caches) / chip["bytes_per_s"]
    a_token = 2 * m["D"] * m["L"]  # bytes in all layers, once
    reduced = 4 * (1 - copies / n) * B / copies * a_token
    visits = 2 * (B / n) * m["k"] * a_token * (1 - 1 / n)
    seconds = seconds + (reduced + visits) / chip["link_bytes_per_s"]
    seconds[~fits] = np.inf
    at = int(seconds.argmin())
    return [int(copies[at]), float(seconds[at])]
