def shapes():
    block = {"B": 3, "T": 2, "S": 70, "N": 4, "R": 6, "nope_dim": 3, "rope_dim": 2, "v_dim": 8}
    prompt = dict(block, S=3, T=3, N=1)
    step = dict(block, T=1)
    return [block, prompt, step]
