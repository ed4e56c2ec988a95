def route(logits, k, normalize):
    shares = (logits - logits.amax(1, keepdim=True)).exp()
    order = shares.argsort(dim=1, descending=True)[:, :k]
    chosen = torch.take_along_dim(shares, order, 1)
    whole = chosen if normalize else shares
    return order, chosen / whole.sum(1)[:, None]
