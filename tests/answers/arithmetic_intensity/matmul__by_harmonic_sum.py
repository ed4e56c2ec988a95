def intensity(B, D, F, bytes_per_param, bytes_per_activation):
    w, a = np.float64(bytes_per_param), np.float64(bytes_per_activation)
    return 2 / (w / B + a / D + a / F)
