def step_s(B, n_params, bits, group, bytes_per_s, flops_per_s):
    weights_per_s = 8 * bytes_per_s / (bits + 16 / group)
    products_per_s = flops_per_s / 2 / B
    return n_params / min(weights_per_s, products_per_s)
