def choose(layer, passes, chip):
    B, T, S = np.array(passes, dtype=float).T
    N, R, P, U, V = (layer[n] for n in ("N", "R", "rope_dim", "nope_dim", "v_dim"))
    weights, cache = N * R * (U + V), B * S * (R + P)
    unfold = B * S * N * (U + V)
    computed = np.stack(
        [S * R * (U + V) + T * S * (U + P + V), T * R * (U + V) + T * S * (R + P + R)]
    )
    moved = np.stack(
        [
            weights + cache + unfold + unfold + B * T * N * (U + P + V),
            weights + cache + B * T * N * (U + P + V + 4 * R),
        ]
    )
    seconds = np.maximum(
        computed * B * N * 2 / chip["flops_per_s"], moved * 2 / chip["bytes_per_s"]
    )
    seconds[0, unfold * 2 > chip["scratch_bytes"]] = np.inf
    return [[("expanded", "absorbed")[i], s] for i, s in zip(seconds.argmin(0), seconds.min(0))]
