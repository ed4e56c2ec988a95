def _held_and_read(name, m, w, n):
    per_layer = 3 * m["D"] * m["F"] + 2 * m["D"] * m["H"] * (m["N"] + m["K"])
    weights = m["L"] * per_layer * m["bytes"]
    one = 2 * m["L"] * m["K"] * m["H"] * w["S"] * m["bytes"]
    if name == "tensor":
        kept = w["B"] * one * math.ceil(m["K"] / n) / m["K"]
    elif name == "length":
        kept = w["B"] * one / n
    else:
        kept = math.ceil(w["B"] / n) * one
    held = weights + kept if name == "replicas" else weights / n + kept
    read = weights + kept if name in ("gathered", "replicas") else weights / n + kept
    tokens = math.ceil(w["B"] / n) if name in ("gathered", "replicas") else w["B"] / n
    return held, read, 2 * m["L"] * per_layer * tokens


def _messages(name, m, w, n):
    B, b = w["B"], m["bytes"]
    gather, exchange = [], []
    reduce = [B * m["D"] * b] * 2 if name in ("tensor", "batch", "length") else []
    new = B * (m["N"] + 2 * m["K"]) * m["H"] * b
    if name == "batch":
        exchange = [new / n, B * m["N"] * m["H"] * b / n]
    if name == "length":
        gather, exchange = [new], [B * m["N"] * (m["H"] + 2) * 4]
    if name == "gathered":
        gather = [(3 * m["D"] * m["F"] + 2 * m["D"] * m["H"] * (m["N"] + m["K"])) * b]
    return [*reduce, *reduce, *gather, *exchange]


def choose(model, workload, machine):
    n = machine["n_chips"]
    times = {}
    for name in ("replicas", "gathered", "length", "batch", "tensor"):
        held, read, flops = _held_and_read(name, model, workload, n)
        if held <= machine["memory_bytes"]:
            each = [
                v * (n - 1) / n / machine["link_bytes_per_s"] + (n - 1) * machine["hop_s"]
                for v in _messages(name, model, workload, n)
            ]
            work = max(read / machine["bytes_per_s"], flops / machine["flops_per_s"])
            times[name] = work + model["L"] * sum(each)
    return (min(times, key=times.get) if times else None), times
