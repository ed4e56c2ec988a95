def decode_nf4(stored, levels, table):
    halves = [half for byte in stored["codes"] for half in divmod(byte, 16)][: stored["n"]]
    weights = []
    for b, code in enumerate(stored["maxima"]):
        largest = table[code] * stored["outer"][b >> 8] + stored["mean"]
        weights += [levels[half] * largest for half in halves[64 * b : 64 * b + 64]]
    return weights
