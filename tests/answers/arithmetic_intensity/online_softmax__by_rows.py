def update(m, l, scores):
    m, l = m.clone(), l.clone()
    for t in range(scores.shape[0]):
        for x in scores[t].tolist():
            old = m[t].item()
            if x == float("-inf"):
                continue
            if x > old:
                l[t] = l[t] * math.exp(old - x) + 1.0
                m[t] = x
            else:
                l[t] += math.exp(x - old)
    return [m, l]
