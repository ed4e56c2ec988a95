def forward_flops(model, T, n_cached):
    L, D, F, N, K, H, V = (model[x] for x in "LDFNKHV")
    S = n_cached + T
    products = []
    for _ in range(L):
        products += [(T, D, N * H), (T, D, K * H), (T, D, K * H), (T, N * H, D)]
        products += [(T, H, S), (T, S, H)] * N
        products += [(T, D, F), (T, D, F), (T, F, D)]
    products.append((T, D, V))
    return sum(2 * a * b * c for a, b, c in products)
