from fractions import Fraction


def longest_context(memory, n_params, width, B, kv_bytes_per_token, activations, percent):
    usable = Fraction(100 * memory, 100 + percent)
    free = usable - n_params * width - activations
    return max(0, math.floor(free / (B * kv_bytes_per_token)))
