def forward_flops(model, T, n_cached):
    m = model
    per_layer = 2 * m["D"] * m["H"] * (m["N"] + m["K"]) + 3 * m["D"] * m["F"]
    parameters = m["L"] * per_layer + m["V"] * m["D"]
    pairs = T * (T + n_cached)
    return 2.0 * parameters * T + 4.0 * m["L"] * m["N"] * m["H"] * pairs
