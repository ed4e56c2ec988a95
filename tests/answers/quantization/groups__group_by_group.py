def quantize(w, group, bits):
    O, I = w.shape
    n = math.ceil(I / group)
    codes = torch.zeros(O, I, dtype=torch.int8)
    scales = torch.ones(O, n, dtype=torch.float16)
    last = 2 ** (bits - 1) - 1
    for row in range(O):
        for g in range(n):
            part = w[row, g * group : (g + 1) * group]
            scale = np.float16(float(part.abs().max()) / last)
            if scale > 0:
                scales[row, g] = float(scale)
            quotients = part / float(scales[row, g])
            codes[row, g * group : (g + 1) * group] = quotients.round().clamp(-last, last)
    return codes, scales
