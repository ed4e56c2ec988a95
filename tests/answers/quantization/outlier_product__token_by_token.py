def product(x, codes, scales, threshold):
    w = codes.double() * scales.double()[:, None]
    large = {i for row in x.tolist() for i, v in enumerate(row) if abs(v) >= threshold}
    rows = []
    for row in x.double().tolist():
        step = max((abs(v) for i, v in enumerate(row) if i not in large), default=0.0) / 127
        seen = [v if i in large or step == 0 else round(v / step) * step for i, v in enumerate(row)]
        rows.append(w @ torch.tensor(seen, dtype=torch.float64))
    return torch.stack(rows).float()
