def start(T, H):
    return [{"out": [0.0] * H, "m": -math.inf, "l": 0.0} for _ in range(T)]


def add_block(state, q, k, v, key_start, query_start):
    for t, row in enumerate(state):
        for j in range(min(len(k), query_start + t - key_start + 1)):
            score = float(q[t].double() @ k[j].double()) / math.sqrt(q.shape[1])
            if score > row["m"]:
                shrink = math.exp(row["m"] - score)
                row["out"], row["l"], row["m"] = (
                    [x * shrink for x in row["out"]],
                    row["l"] * shrink,
                    score,
                )
            weight = math.exp(score - row["m"])
            row["out"] = [x + weight * y for x, y in zip(row["out"], v[j].tolist())]
            row["l"] += weight
    return state


def finish(state):
    return torch.tensor([[x / row["l"] for x in row["out"]] for row in state])
