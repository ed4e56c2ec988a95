def keep(cache, lengths, kept):
    new = cache.clone()
    ends = []
    for b in range(len(lengths)):
        end = lengths[b]
        for place in kept[b]:
            new[b, end] = cache[b, lengths[b] + place]
            end += 1
        new[b, end:] = 0
        ends.append(end)
    return new, ends
