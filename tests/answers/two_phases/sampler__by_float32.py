def sample(logits, temperature, top_k, top_p, choose):
    logits = torch.tensor(logits)
    if temperature == 0:
        return logits.argmax()
    probs, tokens = torch.softmax(logits / temperature, dim=0).sort(descending=True)
    if top_k is not None:
        probs = probs[:top_k] / probs[:top_k].sum()
    if top_p is not None:
        probs = probs[probs.cumsum(0) - probs < top_p]
    return tokens[choose(probs / probs.sum())]
