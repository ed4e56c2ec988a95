def expose():
    return ({"window": 1, "blocks": (2, 1)}, {"window": 16, "blocks": [10, 10]})


class Ring:
    def __init__(self, window):
        self.slots = {}
        self.window = window
        self.length = 0

    def feed(self, tokens):
        out = []
        for position, token in enumerate(tokens, start=self.length):
            self.slots[position % self.window] = (position, token)
            # a slot's token is in the window: it is the newest of its slot
            out.append([tok for _, tok in sorted(self.slots.values(), reverse=True)])
        self.length += len(tokens)
        return out
