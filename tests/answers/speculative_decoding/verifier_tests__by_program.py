def verifier_tests():
    def law(target, draft, drafted, said=(), weight=1.0):
        if not drafted:
            return [[[*said, x], weight * p] for x, p in enumerate(target[0])]
        keep = min(1, target[0][drafted[0]] / draft[0][drafted[0]])
        left = [max(t - d, 0) for t, d in zip(target[0], draft[0])]
        found = law(target[1:], draft[1:], drafted[1:], (*said, drafted[0]), weight * keep)
        if keep < 1:
            found += [[[*said, x], weight * (1 - keep) * p / sum(left)] for x, p in enumerate(left)]
        return found

    t = [[0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.2, 0.3], [0.3, 0.3, 0.3, 0.1], [0.1, 0.6, 0.2, 0.1]]
    d = [[0.2, 0.4, 0.2, 0.2], [0.2, 0.2, 0.1, 0.5], [0.2, 0.2, 0.4, 0.2]]
    made = []
    for drafted in ([1, 3, 2], [0, 1, 2], [3, 0, 0]):
        made.append({"target": t, "draft": d, "drafted": drafted, "law": law(t, d, drafted)})
    return made
