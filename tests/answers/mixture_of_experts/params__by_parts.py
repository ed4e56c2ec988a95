def moe_params(L, D, F, N, K, H, V, E, k, n_shared):
    def with_experts(n):
        mlps = 3 * F * (n + n_shared)
        return D * (V + L * (mlps + E + 2 * H * (N + K)))

    return dict(total=with_experts(E), active=with_experts(k))
