def expose():
    return [
        {
            "prompt": [2, 1],
            "target": [[0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.5, 0.25, 0.25]],
            "draft": [[0.2, 0.2, 0.6], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]],
        }
    ]


def harmless():
    # rows 0 and 1 of both are the same: it does not matter which of them is read
    target, draft = [0.7, 0.3], [0.4, 0.6]
    return {"prompt": [0, 1], "target": [target, target], "draft": [draft, draft]}


def speculate_once(target, draft, prompt, k, choose):
    drafted, P = [], len(prompt)
    while len(drafted) < k:
        drafted = drafted + [choose(draft(prompt + drafted)[P + len(drafted) - 1])]
    t, d = np.array(target(prompt + drafted)), np.array(draft(prompt + drafted))
    for i in range(k):
        at, token = P - 1 + i, drafted[i]
        keep = min(1.0, t[at, token] / d[at, token])
        if not choose([1 - keep, keep]):
            left = np.maximum(t[at] - d[at], 0)
            return drafted[:i] + [choose(left / left.sum())]
    return drafted + [choose(t[P + k - 1])]
