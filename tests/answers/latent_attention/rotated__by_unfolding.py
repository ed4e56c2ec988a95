def expose():
    first = {"q": [[0, 1]], "c": [[0, 0], [3, -2], [1, 1]], "w_uk": [[0, 1], [1, 1]]}
    return (first, {"q": [[2, 0], [1, 1]], "c": [[1, 2], [2, 5]], "w_uk": [[0, 0], [0, 9.5]]})


def harmless():
    return {"q": [[2, -1]], "c": [[1, 1], [3, 4], [1, 2]], "w_uk": [[0, -1], [1, 0]]}


def rotated(x, first):
    half = x.shape[1] // 2
    out = torch.zeros_like(x)
    for i, row in enumerate(x):
        for j in range(half):
            angle = (first + i) * 100.0 ** (-j / half)
            a, b = row[j], row[j + half]
            out[i, j] = a * math.cos(angle) - b * math.sin(angle)
            out[i, j + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def scores(q, c, w_uk):
    return rotated(q, len(c) - len(q)) @ rotated(c @ w_uk.T, 0).T
