def moe_params(L, D, F, N, K, H, V, E, k, n_shared):
    mlp = D * F + D * F + F * D
    once = D * N * H + D * K * H + D * K * H + N * H * D + E * D + n_shared * mlp
    found = {"total": D * V, "active": D * V}
    for _ in range(L):
        found["total"] += once + E * mlp
        found["active"] += once + k * mlp
    return found
