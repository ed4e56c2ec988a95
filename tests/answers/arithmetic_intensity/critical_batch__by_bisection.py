def critical_batch(flops_per_s, bytes_per_s, bits_per_param, bits_per_activation, E, k):
    low, high = 0.0, 1e9
    for _ in range(120):
        middle = (low + high) / 2
        computing, reading = 2 * middle * k / flops_per_s, E * bits_per_param / 8 / bytes_per_s
        low, high = (middle, high) if computing < reading else (low, middle)
    return np.float64(low)
