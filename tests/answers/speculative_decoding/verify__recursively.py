def verify(target_probs, draft_probs, drafted, choose):
    if not drafted:
        return [choose(target_probs[0])]
    target, draft, token = target_probs[0], draft_probs[0], drafted[0]
    keep = target[token] / draft[token]
    if keep < 1 and choose([keep, 1 - keep]):
        left = [max(t - d, 0) for t, d in zip(target, draft)]
        return [choose([x / sum(left) for x in left])]
    return [token] + verify(target_probs[1:], draft_probs[1:], drafted[1:], choose)
