def lookup(text, n, longest):
    for size in sorted(range(1, longest + 1), reverse=True):
        if size >= len(text):
            continue
        last = {}
        for start in range(len(text) - size):
            last[tuple(text[start : start + size])] = start + size
        found = last.get(tuple(text[-size:]))
        if found is not None:
            return text[found : found + n]
    return []
