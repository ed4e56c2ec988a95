def waste(held, final, max_len, block_size):
    def count(places_of):
        found = {"used": 0, "reserved": 0, "internal": 0}
        for now, end in zip(held, final):
            for place in range(places_of(now)):
                kind = "used" if place < now else "reserved" if place < end else "internal"
                found[kind] += 1
        return found

    def in_blocks(now):
        places = 0
        while places < now:
            places += block_size
        return places

    return {"pieces": count(lambda now: max_len), "blocks": count(in_blocks)}
