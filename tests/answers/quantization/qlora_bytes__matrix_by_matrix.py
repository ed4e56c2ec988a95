def qlora_bytes(matrices, rank):
    total = {"base": 0, "adapters": 0}
    for O, I in matrices:
        blocks = len(range(0, O * I, 64))
        total["base"] += len(range(0, O * I, 2)) + blocks + 4 * (len(range(0, blocks, 256)) + 1)
        for n in (rank * I, O * rank):
            total["adapters"] += n * (2 + 2 + 4 + 4)
    return total
