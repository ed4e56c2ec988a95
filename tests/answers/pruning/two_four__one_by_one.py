def two_four(weight, input_norms):
    mask = torch.zeros(weight.shape, dtype=torch.bool)
    scores = (weight.abs() * input_norms).tolist()
    for row, numbers in enumerate(scores):
        for start in range(0, len(numbers), 4):
            places = sorted(range(start, start + 4), key=lambda i: numbers[i])
            mask[row, places[2:]] = True
    return mask
