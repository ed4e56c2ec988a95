def to_remove(loss, sizes, budget):
    def ways(unit, room):
        """Sets of units from this one on that may stay, within so many bytes."""
        if unit == len(sizes):
            return [[]]
        found = ways(unit + 1, room)
        if sizes[unit] <= room:
            found = found + [[unit, *others] for others in ways(unit + 1, room - sizes[unit])]
        return found

    units = set(range(len(sizes)))
    return min((sorted(units - set(stay)) for stay in ways(0, budget)), key=loss)
