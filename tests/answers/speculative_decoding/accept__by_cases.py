def judge_token(target_probs, draft_probs, token, choose):
    t, d = target_probs[token], draft_probs[token]
    if t >= d or choose([t / d, 1 - t / d]) == 0:
        return True, token
    spare = [t - d if t > d else 0.0 for t, d in zip(target_probs, draft_probs)]
    return False, choose([x / sum(spare) for x in spare])
