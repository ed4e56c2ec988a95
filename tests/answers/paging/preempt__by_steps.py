import math


def give_way(n_tokens, block_size, token_bytes, link_bytes_per_s, token_flops, flops_per_s):
    block_bytes = block_size * token_bytes
    out = math.ceil(n_tokens / block_size) * block_bytes / link_bytes_per_s
    there_and_back = out + out
    again = n_tokens * (token_flops / flops_per_s)
    if abs(again - there_and_back) < 1e-12 * again or again < there_and_back:
        return {"swap_s": there_and_back, "recompute_s": again, "cheaper": "recompute"}
    return {"swap_s": there_and_back, "recompute_s": again, "cheaper": "swap"}
