def judge_token(target_probs, draft_probs, token, choose):
    target, draft = np.array(target_probs), np.array(draft_probs)
    keep = np.minimum(1, target[token] / draft[token])
    if choose(np.array([1 - keep, keep])):
        return True, token
    left = (target - draft).clip(0)
    return False, choose(left / left.sum())
