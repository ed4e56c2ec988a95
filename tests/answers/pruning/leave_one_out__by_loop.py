def importance(loss, groups):
    before = loss([])
    rises = []
    for group in groups:
        after = loss(list(group))
        rises.append(after - before)
    return rises
