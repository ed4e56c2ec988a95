def gptq_column(w, h_inverse, rounded):
    O, m = w.shape
    corner = float(h_inverse[0, 0])
    after = w[:, 1:].clone()
    left = h_inverse[1:, 1:].clone()
    scaled_error = (w[:, 0] - rounded) / corner
    for j in range(1, m):
        after[:, j - 1] -= scaled_error * h_inverse[0, j]
        left[j - 1] -= h_inverse[j, 0] * h_inverse[0, 1:] / corner
    return after, left
