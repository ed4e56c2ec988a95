def expose():
    none = float("-inf")
    rows = [[1.0, 0.0, 2.0], [4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]
    other = [[7.0, 8.0, 9.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    return [[rows, [95.0, 0.5, none], other, [94.0, 0.25, none]]]


def merge(out_a, lse_a, out_b, lse_b):
    out, lse = torch.zeros_like(out_a), torch.full_like(lse_a, -math.inf)
    for t in range(len(lse_a)):
        parts = [
            (x[t].item(), y[t])
            for x, y in ((lse_a, out_a), (lse_b, out_b))
            if x[t].item() > -math.inf
        ]
        if not parts:
            continue
        top = max(x for x, _ in parts)
        total = sum(math.exp(x - top) for x, _ in parts)
        out[t] = sum(math.exp(x - top) / total * y for x, y in parts)
        lse[t] = top + math.log(total)
    return [out, lse]
