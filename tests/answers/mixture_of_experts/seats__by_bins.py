def seats(experts, E, percent):
    visits = len(experts) * len(experts[0])
    room, rest = divmod(percent * visits, 100 * E)
    room += rest > 0
    places = [[None for _ in row] for row in experts]
    bins = [[] for _ in range(E)]
    for j, choices in enumerate(zip(*experts)):
        for t, e in enumerate(choices):
            if len(bins[e]) == room:
                continue
            places[t][j] = len(bins[e])
            bins[e].append(t)
    return places
