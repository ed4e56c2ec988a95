def after(model, kept, B, S, bytes_per_number, bytes_per_s):
    L, D, F, K = (kept.get(name, model[name]) for name in "LDFK")
    H, V = model["H"], model["V"]
    N = model["N"] // model["K"] * K
    layer = D * N * H + D * K * H + D * K * H + N * H * D + D * F + D * F + F * D
    params = V * D + L * layer
    keys_and_values = 2 * B * S * L * K * H
    read = bytes_per_number * (params + keys_and_values)
    return {"params": params, "bytes": params * bytes_per_number, "step_s": read / bytes_per_s}
