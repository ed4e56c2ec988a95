def lookup(text, n, longest):
    best, behind = 0, None
    for end in range(len(text) - 1, 0, -1):  # a match ends before `end`
        size = 0
        while size < min(longest, end) and text[end - 1 - size] == text[-1 - size]:
            size += 1
        if size > best:
            best, behind = size, end
    return [] if behind is None else text[behind : behind + n]
