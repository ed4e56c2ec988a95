from collections import Counter


def step_times(kernels, flops_per_s, bytes_per_s):
    alike = Counter(map(tuple, kernels))
    computing = sum(n * flops for (flops, _), n in alike.items()) / flops_per_s
    traffic = sum(n * moved for (_, moved), n in alike.items()) / bytes_per_s
    within = math.fsum(
        n * max(flops / flops_per_s, moved / bytes_per_s) for (flops, moved), n in alike.items()
    )
    return [max(computing, traffic), within, computing + traffic]
