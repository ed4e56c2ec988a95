def latency_report(requests):
    def three(values):
        if not values:
            return [None] * 3
        return np.percentile(values, [50, 95, 99], method="inverted_cdf").tolist()

    ttft, gaps = [], []
    for r in requests:
        if r["times_s"]:
            ttft.append(r["times_s"][0] - r["arrival_s"])
            gaps += np.diff(r["times_s"]).tolist()
    return {
        "ttft_s": three(ttft),
        "tpot_s": three(gaps),
        "unanswered": len(requests) - len(ttft),
    }
