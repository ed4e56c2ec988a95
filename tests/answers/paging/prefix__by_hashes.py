import hashlib


class PrefixCache:
    def __init__(self, block_size):
        self.block_size = block_size
        self.blocks = {}

    def hashes(self, tokens):
        parent = b"the beginning"
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            own = repr(tokens[end - self.block_size : end]).encode()
            parent = hashlib.sha256(parent + own).digest()
            yield parent

    def insert(self, tokens, table):
        for i, digest in enumerate(self.hashes(tokens)):
            if digest not in self.blocks:
                self.blocks[digest] = table[i]
        return self

    def match(self, tokens):
        found = []
        for digest in self.hashes(tokens[: len(tokens) - 1]):
            if digest not in self.blocks:
                break
            found.append(self.blocks[digest])
        return found
