def route(logits, k, normalize):
    best = torch.topk(logits, k, dim=1)
    if normalize:
        return best.indices, best.values.softmax(dim=1)
    return best.indices, (best.values - logits.logsumexp(1, keepdim=True)).exp()
