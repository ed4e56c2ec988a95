def choose(target, machine, drafts, B):
    def seconds(model, tokens):
        read = model["weight_bytes"] + B * model["cache_bytes"]
        computed = B * tokens * model["token_flops"]
        return max(read / machine["bytes_per_s"], computed / machine["flops_per_s"])

    found = {(None, 0): 1 / seconds(target, 1)}
    for draft in drafts:
        used = sum(m["weight_bytes"] + B * m["cache_bytes"] for m in (target, draft))
        if used > machine["memory_bytes"]:
            continue
        for gamma in range(1, len(draft["acceptances"]) + 1):
            tokens = 1 + sum(math.prod(draft["acceptances"][:i]) for i in range(1, gamma + 1))
            spent = gamma * seconds(draft, 1) + seconds(target, gamma + 1)
            found[draft["name"], gamma] = tokens / spent
    return max(found, key=found.get)
