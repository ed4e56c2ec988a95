from fractions import Fraction
from math import ceil


def seated(experts, E, percent):
    room = ceil(Fraction(percent * len(experts) * len(experts[0]), 100 * E))
    bins = {e: [] for e in range(E)}
    for choice in range(len(experts[0])):
        for token, row in enumerate(experts):
            bins[row[choice]].append((token, choice))
    places = {visit: i for queue in bins.values() for i, visit in enumerate(queue[:room])}
    return tuple(
        tuple(places.get((token, choice)) for choice in range(len(row)))
        for token, row in enumerate(experts)
    )


def seat_tests():
    routing = [[t % 3, (t + 1) % 4 if t % 3 != (t + 1) % 4 else 3] for t in range(10)]
    return [
        {"experts": routing, "E": 5, "percent": percent, "seats": seated(routing, 5, percent)}
        for percent in (40, 55, 70, 90, 110, 130)
    ]
