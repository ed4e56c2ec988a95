def decode(codes, exponent_bits, mantissa_bits, top):
    found = []
    for code in codes:
        digits = bin(code)[2:].zfill(1 + exponent_bits + mantissa_bits)
        sign, exponent, mantissa = digits[0], digits[1 : 1 + exponent_bits], digits[-mantissa_bits:]
        bias = 2 ** (exponent_bits - 1) - 1
        ones = "0" not in exponent
        if ones and top == "inf":
            number = float("nan") if "1" in mantissa else float("inf")
        elif ones and top == "nan" and "0" not in mantissa:
            number = float("nan")
        else:
            hidden = 1 if "1" in exponent else 0
            power = max(int(exponent, 2), 1) - bias
            number = hidden + sum(2.0 ** -(i + 1) for i, bit in enumerate(mantissa) if bit == "1")
            number = math.ldexp(number, power)
        found.append(number if sign == "0" else -number)
    return found
