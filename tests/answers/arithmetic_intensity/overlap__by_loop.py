def step_times(kernels, flops_per_s, bytes_per_s):
    compute = traffic = in_turn = 0.0
    for flops, n_bytes in kernels:
        c, m = flops / flops_per_s, n_bytes / bytes_per_s
        compute, traffic = compute + c, traffic + m
        in_turn += c if c > m else m
    return [compute if compute > traffic else traffic, in_turn, compute + traffic]
