def critical(dense_params, expert_params, E, k, flops_per_s, bytes_per_s, bytes_per_param):
    def surplus(B):
        computing = 2 * B * (dense_params + k * expert_params) / flops_per_s
        touched = E - E * ((E - k) / E) ** B
        return computing - (dense_params + touched * expert_params) * bytes_per_param / bytes_per_s

    low, high = 1, 2_000_000
    while low < high:
        middle = (low + high) // 2
        if surplus(middle) >= 0:
            high = middle
        else:
            low = middle + 1
    return low
