def expose():
    return [
        {
            "n": 4,
            "x": [[1.5], [-2]],
            "w_in": [[1, -1, 2, 1]],
            "w_out": [[1], [1], [2], [0.5]],
            "bias": [3],
        }
    ]


def layer_rank(x, w_in, w_out, bias, all_reduce):
    h = (x @ w_in).clamp(min=0)
    total = all_reduce(h @ w_out)
    return total + (x + bias)
