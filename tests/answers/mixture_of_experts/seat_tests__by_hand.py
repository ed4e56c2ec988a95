def seat_tests():
    # room for one: 50 % of 6 visits, over 3 experts
    tight = {
        "experts": [[0, 1], [1, 0], [1, 2]],
        "E": 3,
        "percent": 50,
        "seats": [[0, None], [0, None], [None, 0]],
    }
    # room for 1.5, rounded up
    uneven = {
        "experts": [[0, 1], [1, 0], [1, 2]],
        "E": 4,
        "percent": 100,
        "seats": [[0, None], [0, 1], [1, 0]],
    }
    return [tight, uneven]
