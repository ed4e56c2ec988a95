def critical_batch(flops_per_s, bytes_per_s, bits_per_param, bits_per_activation, E, k):
    t_read = E * (bits_per_param / 8) / bytes_per_s  # one parameter of every expert
    t_token = 2 * k / flops_per_s
    return np.array(t_read / t_token)
