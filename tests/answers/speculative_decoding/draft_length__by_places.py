def best_length(kept, draft_s, verify_s):
    rates, tokens = [], 1.0
    for gamma in range(len(verify_s)):
        if gamma:
            tokens += sum(n >= gamma for n in kept) / len(kept)
        rates.append(tokens / (verify_s[gamma] + draft_s * gamma))
    return rates.index(max(rates))
