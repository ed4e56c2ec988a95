def checkpoint_bytes(model, bits, group, zero_bits):
    m = model
    heads, kv_heads = m["N"] * m["H"], m["K"] * m["H"]
    inputs = {m["D"]: heads + 2 * kv_heads + 2 * m["F"]}
    for width, outputs in ((heads, m["D"]), (m["F"], m["D"])):
        inputs[width] = inputs.get(width, 0) + outputs
    quantized = 0
    for width, outputs in inputs.items():
        n_groups = (width + group - 1) // group
        row = (width * bits + 7) // 8 + n_groups * 2 + (n_groups * zero_bits + 7) // 8
        quantized += m["L"] * outputs * row
    norms = 2 * m["L"] + 1
    tables = m["V"] * (2 - m["tied"])
    return {"quantized": quantized, "plain": 2 * m["D"] * (tables + norms)}
