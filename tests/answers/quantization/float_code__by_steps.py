def decode(codes, exponent_bits, mantissa_bits, top):
    n_sizes = 2 ** (exponent_bits + mantissa_bits)
    fractions = 2**mantissa_bits
    smallest = 2.0 ** (2 - 2 ** (exponent_bits - 1) - mantissa_bits)

    def value(code):
        sign, size = divmod(code, n_sizes)
        exponent, fraction = divmod(size, fractions)
        infinity = n_sizes - fractions
        if (top == "inf" and size > infinity) or (top == "nan" and size == n_sizes - 1):
            return math.nan
        if top == "inf" and size == infinity:
            found = math.inf
        elif exponent == 0:
            found = fraction * smallest
        else:
            found = (fractions + fraction) * 2 ** (exponent - 1) * smallest
        return found * (-1) ** sign

    return [value(code) for code in codes]
