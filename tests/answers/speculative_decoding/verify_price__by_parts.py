def verify_price(weight_bytes, cache_bytes, token_flops, B, gamma, bytes_per_s, flops_per_s):
    def seconds(tokens):
        return max(
            (weight_bytes + B * cache_bytes) / bytes_per_s, B * tokens * token_flops / flops_per_s
        )

    return {
        "plain_s": seconds(1),
        "verify_s": seconds(gamma + 1),
        "ratio": seconds(gamma + 1) / seconds(1),
    }
