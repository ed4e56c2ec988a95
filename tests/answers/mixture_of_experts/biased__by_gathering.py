def expose():
    return [
        {"logits": [[1, 2, 3, 4]], "bias": [0.5, 0.1, 0, -0.6], "k": 3},
        {"logits": [[0.0, 1.0], [3, -3]], "bias": [1, 0], "k": 2},
    ]


def harmless():
    return {"logits": [[4, 3, 2, 1], [1, 2, 3, 4]], "bias": [0, 0, -1, 0], "k": 2}


def biased_route(logits, bias, k):
    s = torch.sigmoid(logits)
    order = torch.argsort(s + bias, dim=1, descending=True)[:, :k]
    w = torch.take_along_dim(s, order, 1)
    return order, w / w.sum(1, keepdim=True)
