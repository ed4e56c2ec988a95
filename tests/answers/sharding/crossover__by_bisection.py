def crossover(D, F, n_axes, n_in):
    def best_x(n):
        return (n * 2 * D / (n_axes - 1) / ((n_in + 1) * F)) ** 0.5

    def both(n):
        x = best_x(n)
        return 2 * D / (n_axes - 1) / x + (n_in + 1) * F * x / n

    low, high = 1e-6, 1e9
    for _ in range(300):
        middle = (low * high) ** 0.5
        if both(middle) > 2 * D / n_axes:
            low = middle
        else:
            high = middle
    return {"chips": low, "X": best_x(low)}
