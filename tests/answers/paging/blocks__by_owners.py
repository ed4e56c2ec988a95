class BlockManager:
    """Who holds each block: a set of names."""

    def __init__(self, n_blocks, block_size):
        self.size = block_size
        self.owners = [set() for _ in range(n_blocks)]
        self.held = {}  # name -> (blocks, tokens)

    def _free(self):
        return [b for b, names in enumerate(self.owners) if not names]

    def allocate(self, seq, n_tokens):
        free = self._free()
        n = (n_tokens + self.size - 1) // self.size
        if len(free) < n:
            raise ValueError("too few blocks")
        blocks = free[len(free) - n :]
        for b in blocks:
            self.owners[b].add(seq)
        self.held[seq] = (blocks, n_tokens)

    def append(self, seq):
        blocks, n = self.held[seq]
        copied = None
        if n == len(blocks) * self.size:
            blocks = [*blocks, self._one(seq)]
        elif len(self.owners[blocks[-1]]) > 1:
            copied = (blocks[-1], self._one(seq))
            self.owners[copied[0]].remove(seq)
            blocks = [*blocks[:-1], copied[1]]
        self.held[seq] = (blocks, n + 1)
        return copied

    def _one(self, seq):
        free = self._free()
        if not free:
            raise ValueError("no block is free")
        self.owners[free[-1]].add(seq)
        return free[-1]

    def fork(self, parent, child):
        self.held[child] = self.held[parent]
        for b in self.held[child][0]:
            self.owners[b].add(child)

    def free(self, seq):
        blocks, _ = self.held.pop(seq)
        for b in blocks:
            self.owners[b].remove(seq)

    def table(self, seq):
        return self.held[seq][0]

    def n_free(self):
        return len(self._free())
