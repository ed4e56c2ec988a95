def two_grids(numbers, bits):
    def nearest(x, levels):
        return min(range(len(levels)), key=lambda i: abs(levels[i] - x))

    size, half = max(abs(x) for x in numbers), 2 ** (bits - 1)
    low, high = min(numbers + [0.0]), max(numbers + [0.0])
    s = size / (half - 1) if size else 1.0
    step = (high - low) / (2 * half - 1) if size else 1.0
    zero = nearest(-low, [i * step for i in range(2 * half)])
    even = [i * s for i in range(1 - half, half)]
    shifted = [(i - zero) * step for i in range(2 * half)]
    return {
        "absmax": (s, [nearest(x, even) - (half - 1) for x in numbers]),
        "affine": (step, zero, [nearest(x, shifted) for x in numbers]),
    }
