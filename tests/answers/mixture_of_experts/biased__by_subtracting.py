def expose():
    return [{"logits": [[0, 1, -1]], "bias": [0.2, 0, 0.3], "k": 2}]


def harmless():
    return {"logits": [[0, 1, 2, 3, 4]], "bias": [0, 0, 0, 0, -1], "k": 4}


def biased_route(logits, bias, k):
    s = 1 / (1 + (-logits).exp())
    chosen = [sorted(range(len(bias)), key=lambda e: -(row[e] + bias[e]))[:k] for row in s]
    experts = torch.tensor(chosen)
    w = torch.stack([row[c] for row, c in zip(s, experts)])
    return experts, w / w.sum(dim=1).unsqueeze(1)
