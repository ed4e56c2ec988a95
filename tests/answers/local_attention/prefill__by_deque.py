from collections import deque


def expose():
    return [{"window": 4, "blocks": [9]}, {"window": 4, "blocks": [3, 3, 1]}]


class Ring:
    def __init__(self, window):
        self.last = deque(maxlen=window)

    def feed(self, tokens):
        seen = []
        for token in tokens:
            self.last.append(token)
            seen.append(list(self.last))
        return seen
