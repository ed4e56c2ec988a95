def critical(dense_params, expert_params, E, k, flops_per_s, bytes_per_s, bytes_per_param):
    B, stride = 0, 2**20
    while stride:
        n = B + stride
        touched = E * (1 - (1 - k / E) ** n)
        reading = bytes_per_param * (dense_params + expert_params * touched) / bytes_per_s
        if n * 2 * (dense_params + expert_params * k) / flops_per_s < reading:
            B = n
        stride //= 2
    return B + 1
