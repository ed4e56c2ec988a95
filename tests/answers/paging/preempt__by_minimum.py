def give_way(n_tokens, block_size, token_bytes, link_bytes_per_s, token_flops, flops_per_s):
    moved = 2 * (n_tokens + -n_tokens % block_size) * token_bytes
    seconds = {
        "recompute": token_flops * n_tokens / flops_per_s,
        "swap": moved / link_bytes_per_s,
    }
    return {
        "cheaper": min(seconds, key=seconds.get),  # of equal ones the first
        "swap_s": seconds["swap"],
        "recompute_s": seconds["recompute"],
    }
