def checkpoint_bytes(model, bits, group, zero_bits):
    def whole(n_bits):
        return n_bits // 8 + (n_bits % 8 > 0)

    def matrix(outputs, inputs):
        groups = len(range(0, inputs, group))
        return outputs * (whole(bits * inputs) + whole(16 * groups) + whole(zero_bits * groups))

    D, F, H = model["D"], model["F"], model["H"]
    attention = (
        matrix(model["N"] * H, D) + 2 * matrix(model["K"] * H, D) + matrix(D, model["N"] * H)
    )
    mlp = matrix(F, D) + matrix(F, D) + matrix(D, F)
    plain = model["V"] * D + D
    if not model["tied"]:
        plain += model["V"] * D
    for _ in range(model["L"]):
        plain += 2 * D
    return {"quantized": model["L"] * (attention + mlp), "plain": 2 * plain}
