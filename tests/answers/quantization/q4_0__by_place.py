def decode_q4_0(data):
    n = len(data) // 18 * 32
    numbers = [0.0] * n
    for i in range(n):
        b, j = divmod(i, 32)
        low, high = data[18 * b], data[18 * b + 1]
        sign = -1 if high >= 128 else 1
        exponent, fraction = high % 128 // 4, high % 4 * 256 + low
        if exponent:
            scale = sign * (1024 + fraction) * 2.0 ** (exponent - 25)
        else:
            scale = sign * fraction * 2.0**-24
        byte = data[18 * b + 2 + j % 16]
        code = byte % 16 if j < 16 else byte // 16
        numbers[i] = scale * (code - 8)
    return numbers
