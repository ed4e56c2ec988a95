def sample(logits, temperature, top_k, top_p, choose):
    ranked = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
    if temperature == 0:
        return ranked[0][0]
    best = ranked[0][1]
    candidates = [(token, math.exp((x - best) / temperature)) for token, x in ranked]
    if top_k is not None:
        candidates = candidates[:top_k]
    if top_p is not None:
        total, mass, kept = sum(w for _, w in candidates), 0.0, []
        for token, weight in candidates:
            kept.append((token, weight))
            mass += weight / total
            if mass >= top_p:
                break
        candidates = kept
    total = sum(w for _, w in candidates)
    return candidates[choose([w / total for _, w in candidates])][
        0
    ]  # an index among the candidates
