def choose(w):
    def allowed(option):
        g, window = option["n_global"], option["window"]
        positions = sum(w["S"] if i < g else min(w["S"], window) for i in range(w["L"]))
        total = w["weight_bytes"] + w["B"] * positions * 2 * w["K"] * w["H"] * w["bytes_per_value"]
        far = g > 0 or (window - 1) * w["L"] + 1 >= w["must_reach"]
        return total <= w["memory_bytes"] and total <= w["step_limit_s"] * w["bytes_per_s"] and far

    good = [i for i, option in enumerate(w["options"]) if allowed(option)]
    return min(good, key=lambda i: w["options"][i]["bits_per_byte"])
