def expose():
    w_uk = np.arange(8.0).reshape(4, 2)
    return [{"q": np.ones((2, 4)), "c": np.array([[1.0, 2.0], [3.0, 4.0]]), "w_uk": w_uk}]


def harmless():
    return {
        "q": [[1, 2, 3, 4]],
        "c": [[1, 0, 0, 1], [2, 1, 3, 0], [0, 1, 1, 2]],
        "w_uk": np.eye(4) * 0.5,
    }


def turn_by(position, width):
    half = width // 2
    angle = position * 100.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = torch.diag(angle.cos()), torch.diag(angle.sin())
    return torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])


def scores(q, c, w_uk):
    T, S, H = len(q), len(c), q.shape[1]
    turns = [turn_by(s, H).float() for s in range(S)]
    keys = torch.stack([turns[s] @ (w_uk @ c[s]) for s in range(S)])
    queries = torch.stack([turns[S - T + t] @ q[t] for t in range(T)])
    return queries @ keys.T
