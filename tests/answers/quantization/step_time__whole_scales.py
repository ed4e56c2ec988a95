def step_s(B, n_params, bits, group, bytes_per_s, flops_per_s):
    n_scales = -(-n_params // group)  # a group that is begun has a scale, too
    n_bytes = n_params * bits / 8 + 2 * n_scales
    return max(n_bytes / bytes_per_s, B * 2 * n_params / flops_per_s)
