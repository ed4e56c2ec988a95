def start(T, H):
    return {"out": [0.0] * (T * H), "top": [-2e3] * T, "mass": [0.0] * T}


def add_block(state, q, k, v, key_start, query_start):
    out, top, mass = (list(part) for part in state.values())
    keys, values, H = k.tolist(), v.tolist(), q.shape[1]
    for t, query in enumerate(q.tolist()):
        for j in range(min(len(keys), query_start + t - key_start + 1)):
            score = sum(a * b for a, b in zip(query, keys[j])) / math.sqrt(H)
            shrink = 1.0
            if score > top[t]:
                shrink, top[t] = math.exp(top[t] - score), score
            weight = math.exp(score - top[t])
            mass[t] = mass[t] * shrink + weight
            for h in range(H):
                out[t * H + h] = out[t * H + h] * shrink + weight * values[j][h]
    return {"out": out, "top": top, "mass": mass}


def finish(state):
    out = torch.tensor(state["out"]).reshape(len(state["mass"]), -1)
    return out / torch.tensor(state["mass"])[:, None]
