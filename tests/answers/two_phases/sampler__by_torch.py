def sample(logits, temperature, top_k, top_p, choose):
    x = torch.tensor(logits, dtype=torch.float64)
    if temperature == 0:
        return int(x.argmax())
    probs = torch.softmax(x / temperature, -1)
    if top_k is not None:
        probs[probs < probs.topk(top_k).values[-1]] = 0
        probs /= probs.sum()
    if top_p is not None:
        values, order = probs.sort(descending=True)
        drop = values.cumsum(-1) - values >= top_p
        probs[order[drop]] = 0
        probs /= probs.sum()
    return choose(probs)
