def diagnose(calls, step_s):
    gains = [(c["kept"] + 1) * step_s - c["draft_s"] - c["verify_s"] for c in calls]
    drafting = [c["draft_s"] for c in calls]
    dear = [c["verify_s"] - step_s for c in calls]
    labels = [
        ("faster", sum(gains)),
        ("warm-up", sum(gains[1:])),
        ("draft", sum(gains) + sum(drafting)),
        ("verification", sum(g + more for g, more in zip(gains, dear))),
    ]
    return next((label for label, gain in labels if gain > 1e-9 * step_s), "acceptance")
