def expose():
    two = {"n": 2, "w_in": [[1, 1], [0, 1]], "w_out": [[1, 0], [0, 1]]}
    return [
        {**two, "x": [[0, 0]], "bias": [5, 5]},  # only the bias is there to be counted twice
        {**two, "x": [[-1, -1]], "bias": [0, 0]},  # only the residual
        {**two, "x": [[0, 0], [1, 2]], "bias": [0, 0]},  # something to sum in the second row
    ]


def layer_rank(x, w_in, w_out, bias, all_reduce):
    zero = torch.zeros((), dtype=x.dtype)
    mine = torch.matmul(torch.maximum(torch.matmul(x, w_in), zero), w_out)
    out = all_reduce(mine)
    out = out + bias.expand_as(out)
    return x + out
