def turned(streams):
    rows = [[[float(v) for v in row] for row in s] for s in streams]

    def unit(row):
        length = math.sqrt(sum(v * v for v in row))
        return [v / length for v in row]

    def one_minus(before, after):
        pairs = zip(unit(before), unit(after))
        return sum((u - v) ** 2 for u, v in pairs) / 2  # |u − v|² = 2 − 2 cos

    return [sum(map(one_minus, x, y)) / len(x) for x, y in zip(rows, rows[1:])]
