def metrics(arrival_s, token_times_s):
    gaps = [b - a for a, b in zip(token_times_s, token_times_s[1:])]
    latency = token_times_s[-1] - arrival_s
    return {
        "ttft_s": token_times_s[0] - arrival_s,
        "tpot_s": sum(gaps) / len(gaps) if gaps else None,
        "latency_s": latency,
        "tokens_per_s": len(token_times_s) / latency,
    }
