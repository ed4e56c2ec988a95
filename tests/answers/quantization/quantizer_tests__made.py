def quantizer_tests():
    def case(levels, off, bits, step):
        numbers = [(q + d) * step for q, d in zip(levels, off)]
        return numbers, bits, levels

    return [
        case([0, 0, 0], [0, 0, 0], 4, 1),
        case([2, -3, 1, 0], [0.3, 0, -0.3, 0.2], 3, 1),
        case([-5, 4, -2, 31], [0.3, -0.4, -0.3, 0], 6, 0.5),
        case([-4, 100, 127], [-0.3, 0.4, 0], 8, 1e-6),
        case([-7] + [-2] * 11 + [1], [0] + [0.4] * 11 + [0.2], 4, 100),
    ]
