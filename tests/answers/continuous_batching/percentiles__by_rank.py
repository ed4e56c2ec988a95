def latency_report(requests):
    def rank(values, p):
        for i, x in enumerate(sorted(values), 1):
            if 100 * i >= p * len(values):
                return x

    def ranks(values):
        return [rank(values, p) for p in (50, 95, 99)]

    answered = [r for r in requests if len(r["times_s"]) > 0]
    ttft = [min(r["times_s"]) - r["arrival_s"] for r in answered]
    tpot = []
    for r in answered:
        for i in range(1, len(r["times_s"])):
            tpot.append(r["times_s"][i] - r["times_s"][i - 1])
    return {
        "ttft_s": ranks(ttft),
        "tpot_s": ranks(tpot),
        "unanswered": len(requests) - len(answered),
    }
