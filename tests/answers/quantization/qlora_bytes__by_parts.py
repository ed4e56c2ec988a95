def qlora_bytes(matrices, rank):
    def up(n, size):
        return (n + size - 1) // size

    sizes = [O * I for O, I in matrices]
    codes = sum(up(n, 2) for n in sizes)
    maxima = sum(up(n, 64) for n in sizes)
    outer = sum(up(n, 64 * 256) for n in sizes)
    trained = rank * sum(O + I for O, I in matrices)
    return {
        "base": codes + maxima + 4 * outer + 4 * len(matrices),
        "adapters": 2 * trained + 2 * trained + 8 * trained,
    }
