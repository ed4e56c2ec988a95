def choose(model, workload, machine):
    L, D, F, N, K, H, b = (model[x] for x in ("L", "D", "F", "N", "K", "H", "bytes"))
    B, S, n = workload["B"], workload["S"], machine["n_chips"]
    P = L * D * (3 * F + 2 * H * (N + K))
    c = 2 * L * S * K * H * b
    own = (B + n - 1) // n
    f = (n - 1) / n
    sums = 4 * f * B * D * b
    table = {  # held, read, flops, sent a layer, hops a layer
        "tensor": (P * b / n, P * b / n, B * c * ((K + n - 1) // n / K), 2 * P * B / n, sums, 4),
        "batch": (
            P * b / n,
            P * b / n,
            own * c,
            2 * P * B / n,
            sums + f * b * B / n * H * (2 * N + 2 * K),
            6,
        ),
        "length": (
            P * b / n,
            P * b / n,
            B * c / n,
            2 * P * B / n,
            sums + f * B * (b * H * (N + 2 * K) + 4 * N * (H + 2)),
            6,
        ),
        "gathered": (P * b / n, P * b, own * c, 2 * P * own, f * P * b / L, 1),
        "replicas": (P * b, P * b, own * c, 2 * P * own, 0, 0),
    }
    times = {}
    for name, (held, read, cache, flops, sent, hops) in table.items():
        if held + cache > machine["memory_bytes"]:
            continue
        t = max((read + cache) / machine["bytes_per_s"], flops / machine["flops_per_s"])
        t += L * (sent / machine["link_bytes_per_s"] + hops * (n - 1) * machine["hop_s"])
        times[name] = t
    return [min(times, key=times.get, default=None), times]
