def mask_tests():
    prompt = {"T": 4, "S": 4, "window": 2, "sees": [[0], [0, 1], [1, 2], [2, 3]]}
    step = {"T": 1, "S": 6, "window": 2, "sees": [[4, 5]]}
    block = {"T": 2, "S": 6, "window": 3, "sees": [[2, 3, 4], [3, 4, 5]]}
    short = {"T": 3, "S": 4, "window": 9, "sees": [[0, 1], [0, 1, 2], [0, 1, 2, 3]]}
    return [prompt, step, block, short]
