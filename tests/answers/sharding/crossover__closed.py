def crossover(D, F, n_axes, n_in):
    chips = 2 * n_axes**2 * (n_in + 1) * F / ((n_axes - 1) * D)
    return {"chips": chips, "X": 2 * n_axes / (n_axes - 1)}
