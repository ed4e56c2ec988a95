def choose(target, machine, drafts, B):
    bandwidth, arithmetic = machine["bytes_per_s"], machine["flops_per_s"]
    reading = (target["weight_bytes"] + B * target["cache_bytes"]) / bandwidth
    computing = B * target["token_flops"] / arithmetic
    best = (None, 0)
    best_rate = B / max(reading, computing)
    room = machine["memory_bytes"] - target["weight_bytes"] - B * target["cache_bytes"]
    for draft in drafts:
        size = draft["weight_bytes"] + B * draft["cache_bytes"]
        if size <= room:
            step = max(size / bandwidth, B * draft["token_flops"] / arithmetic)
            tokens = reached = 1.0
            for gamma, a in enumerate(draft["acceptances"], 1):
                reached *= a
                tokens += reached
                rate = B * tokens / (gamma * step + max(reading, (gamma + 1) * computing))
                if rate > best_rate:
                    best, best_rate = (draft["name"], gamma), rate
    return best
