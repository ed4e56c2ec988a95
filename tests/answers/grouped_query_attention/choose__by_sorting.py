def choose(budget, options):
    def used(K):
        values = budget["other_params"] + 2 * budget["L"] * budget["D"] * budget["H"] * (
            budget["N"] + K
        )
        values += 2 * budget["L"] * budget["H"] * K * budget["n_tokens"] * budget["batch"]
        return values * budget["bytes_per_value"]

    most = budget["step_limit_s"] * budget["bytes_per_s"]
    possible = [
        o for o in options if used(o["K"]) <= budget["memory_bytes"] and used(o["K"]) <= most
    ]
    if not possible:
        return None
    means = [sum(o["losses"]) / len(o["losses"]) for o in possible]
    for K, mean in sorted(zip((o["K"] for o in possible), means)):
        if mean - min(means) <= budget["margin"]:
            return K
