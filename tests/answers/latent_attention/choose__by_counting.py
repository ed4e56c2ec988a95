def choose(layer, passes, chip):
    N, R, rope = layer["N"], layer["R"], layer["rope_dim"]
    heads = layer["nope_dim"] + layer["v_dim"]

    def time_s(flops, n_bytes):
        return max(flops / chip["flops_per_s"], n_bytes / chip["bytes_per_s"])

    forms = []
    for B, T, S in passes:
        shared = 2 * (N * R * heads + B * S * (R + rope))
        unfolded = 2 * B * S * N * heads
        flops = 2 * B * N * S * (R * heads + T * (heads + rope))
        expanded = time_s(flops, shared + 2 * unfolded + 2 * B * T * N * (heads + rope))
        flops = 2 * B * N * T * (R * heads + S * (2 * R + rope))
        absorbed = time_s(flops, shared + 2 * B * T * N * (heads + rope + 4 * R))
        good = unfolded <= chip["scratch_bytes"] and expanded <= absorbed
        forms.append(("expanded", expanded) if good else ("absorbed", absorbed))
    return forms
