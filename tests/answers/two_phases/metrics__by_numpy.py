def metrics(arrival_s, token_times_s):
    t = np.array(token_times_s) - arrival_s
    tpot = np.diff(t).mean() if t.size > 1 else None
    return dict(ttft_s=t[0], tpot_s=tpot, latency_s=t[-1], tokens_per_s=t.size / t[-1])
