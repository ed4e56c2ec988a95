def expose():
    rows = [[0.9, 0.1], [0.2, 0.8]]
    return [{"prompt": [0, 0, 1], "target": rows, "draft": [[0.4, 0.6], [0.6, 0.4]]}]


def harmless():
    rows = [[0.9, 0.1], [0.2, 0.8]]
    return {"prompt": [0, 0], "target": rows, "draft": [[0.4, 0.6], [0.6, 0.4]]}


def speculate_once(target, draft, prompt, k, choose):
    text, laws = list(prompt), []
    for _ in range(k):
        laws.append(draft(text)[-1])
        text.append(choose(laws[-1]))
    wanted = target(text)[-k - 1 :]
    said = []
    for token, t, d in zip(text[len(prompt) :], wanted, laws):
        keep = min(1, t[token] / d[token])
        if choose([1 - keep, keep]) == 0:
            left = [max(x - y, 0) for x, y in zip(t, d)]
            return said + [choose([x / sum(left) for x in left])]
        said.append(token)
    return said + [choose(wanted[-1])]
