def two_four(weight, input_norms):
    O, I = weight.shape
    scores = (weight * input_norms).abs().view(O, I // 4, 4)
    larger = scores[..., None, :] > scores[..., :, None]  # [O, I/4, 4, 4]
    return (larger.sum(-1) < 2).view(O, I)
