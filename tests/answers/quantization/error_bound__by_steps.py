def error_bounds(low, high, bits):
    def half_step(lowest, highest, levels):
        return 0.5 * (highest - lowest) / (levels - 1)

    m = max(-low, high)
    return {
        "absmax": half_step(-m, m, 2**bits - 1),
        "affine": half_step(min(low, 0), max(high, 0), 2**bits),
    }
