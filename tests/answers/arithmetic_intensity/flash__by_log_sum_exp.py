def start(T, H):
    return {
        "out": torch.zeros(T, H, dtype=torch.float64),
        "lse": torch.full((T,), -math.inf, dtype=torch.float64),
    }


def add_block(state, q, k, v, key_start, query_start):
    q, k, v = q.double(), k.double(), v.double()
    n, T = k.shape[0], q.shape[0]
    scores = torch.einsum("th,nh->tn", q, k) * q.shape[1] ** -0.5
    visible = (key_start + torch.arange(n))[None, :] <= (query_start + torch.arange(T))[:, None]
    scores = torch.where(visible, scores, -math.inf)
    block = torch.logsumexp(scores, 1)
    lse = torch.logaddexp(state["lse"], block)
    shift = torch.where(lse.isinf(), torch.zeros_like(lse), lse)
    out = state["out"] * (state["lse"] - shift).exp()[:, None] + (scores - shift[:, None]).exp() @ v
    return {"out": out, "lse": lse}


def finish(state):
    return state["out"].float()
