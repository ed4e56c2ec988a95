def update(m, l, scores):
    tops, sums = [], []
    for top, total, row in zip(m.tolist(), l.tolist(), scores.tolist()):
        for score in row:
            if score == -math.inf:
                continue
            if score > top:
                top, total = score, total * math.exp(top - score)
            total += math.exp(score - top)
        tops.append(top)
        sums.append(total)
    return [torch.tensor(tops), torch.tensor(sums)]
