def verify(target_probs, draft_probs, drafted, choose):
    target = np.array(target_probs, dtype=float)
    draft = np.array(draft_probs, dtype=float).reshape(len(drafted), target.shape[1])
    n = 0
    while n < len(drafted):
        keep = min(1.0, target[n, drafted[n]] / draft[n, drafted[n]])
        if choose([keep, 1 - keep]) == 1:
            law = np.maximum(target[n] - draft[n], 0)
            break
        n += 1
    else:
        law = target[n]
    return list(drafted[:n]) + [choose(law / law.sum())]
