def pack(codes, bits):
    data = [0] * math.ceil(len(codes) * bits / 8)
    place = 0
    for code in codes:
        for i in range(bits):
            if code >> i & 1:
                data[place // 8] |= 1 << place % 8
            place += 1
    return data


def unpack(data, bits, n):
    codes = []
    for i in range(n):
        code = 0
        for j in range(bits):
            place = i * bits + j
            code += (data[place // 8] >> place % 8 & 1) << j
        codes.append(code)
    return codes
