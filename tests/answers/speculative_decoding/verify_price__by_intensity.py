def verify_price(weight_bytes, cache_bytes, token_flops, B, gamma, bytes_per_s, flops_per_s):
    read = weight_bytes + cache_bytes * B
    free = read / bytes_per_s * flops_per_s / token_flops  # tokens that are computed meanwhile
    times = [read / bytes_per_s * max(1, n / free) for n in (B, B * (1 + gamma))]
    return {"plain_s": times[0], "verify_s": times[1], "ratio": times[1] / times[0]}
