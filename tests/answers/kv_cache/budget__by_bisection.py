def longest_context(
    memory_bytes,
    n_params,
    bytes_per_param,
    B,
    kv_bytes_per_token,
    activation_bytes,
    overhead_percent,
):
    def total(S):
        used = n_params * bytes_per_param + activation_bytes + B * S * kv_bytes_per_token
        return used + -(
            -overhead_percent * used // 100
        )  # what needs a part of a byte takes it whole

    low, high = 0, 1
    if total(1) > memory_bytes:
        return 0
    while total(high) <= memory_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if total(middle) <= memory_bytes:
            low = middle
        else:
            high = middle
    return low
