def decode_point(model, B, S, memory_bytes, bytes_per_s):
    queries, keys = model["N"] * model["H"], model["K"] * model["H"]
    layer = [(model["D"], queries), (queries, model["D"]), (model["D"], keys), (model["D"], keys)]
    layer += [(model["D"], model["F"])] * 3
    tables = [(model["V"], model["D"])] * 2
    weights = sum(2 * rows * columns for rows, columns in layer * model["L"] + tables)
    one = sum(2 * keys * S for _ in ("k", "v")) * model["L"]
    if (memory_bytes - weights) // one < B:
        return None
    latency = weights / bytes_per_s + B * one / bytes_per_s
    return [np.float64(latency), np.float64(1 / latency) * B]
