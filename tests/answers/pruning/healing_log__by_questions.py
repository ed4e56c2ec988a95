def read_log(before, log):
    last = log[-1]
    best = sorted(log, key=lambda entry: entry["held_out"])[0]
    back = log[: len(log) - len(log) // 4][-1]
    questions = {
        "broken": log[0]["held_out"] >= 8.0,
        "healed": last["held_out"] <= 1.02 * before,
        "overfit": last["held_out"] > 1.01 * best["held_out"] and best["train"] > last["train"],
        "unfinished": 0.99 * back["held_out"] > last["held_out"],
        "stuck": True,
    }
    return [label for label, answer in questions.items() if answer][0]
