def critical_batch(flops_per_s, bytes_per_s, bits_per_param, bits_per_activation, E, k):
    ridge = flops_per_s / bytes_per_s
    bytes_per_param = bits_per_param / 8
    return ridge * bytes_per_param / 2 * E / k
