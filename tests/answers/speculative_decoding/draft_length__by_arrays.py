def best_length(kept, draft_s, verify_s):
    lengths = np.arange(len(verify_s))
    tokens = np.minimum(np.array(kept)[:, None], lengths).sum(0) + len(kept)
    return int((tokens / (lengths * draft_s + np.array(verify_s))).argmax())
