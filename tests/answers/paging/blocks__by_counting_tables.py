class BlockManager:
    """No counts are kept: the tables say who names a block."""

    def __init__(self, n_blocks, block_size):
        self.n_blocks, self.block_size = n_blocks, block_size
        self.tables, self.lengths = {}, {}

    def users(self, block):
        return sum(block in table for table in self.tables.values())

    def unused(self):
        named = {block for table in self.tables.values() for block in table}
        return [block for block in range(self.n_blocks) if block not in named]

    def allocate(self, seq, n_tokens):
        unused, n = self.unused(), 0
        while n * self.block_size < n_tokens:
            n += 1
        if n > len(unused):
            raise ValueError(f"{n} blocks of {len(unused)}")
        self.tables[seq], self.lengths[seq] = unused[:n], n_tokens

    def append(self, seq):
        table, place = self.tables[seq], self.lengths[seq] % self.block_size
        pair = None
        if place == 0 or self.users(table[-1]) > 1:
            unused = self.unused()
            if not unused:
                raise ValueError("the pool is full")
            if place == 0:
                self.tables[seq] = table + unused[:1]
            else:
                pair = [table[-1], unused[0]]
                self.tables[seq] = table[:-1] + unused[:1]
        self.lengths[seq] += 1
        return pair

    def fork(self, parent, child):
        self.tables[child] = self.tables[parent][:]
        self.lengths[child] = self.lengths[parent]

    def free(self, seq):
        del self.tables[seq], self.lengths[seq]

    def table(self, seq):
        return self.tables[seq]

    def n_free(self):
        return len(self.unused())
