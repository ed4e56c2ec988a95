def error_bounds(low, high, bits):
    size = max(abs(low), abs(high))
    ends = sorted([low, high, 0.0])
    return {
        "absmax": size / (2**bits - 2),
        "affine": (ends[2] - ends[0]) / (2 ** (bits + 1) - 2),
    }
