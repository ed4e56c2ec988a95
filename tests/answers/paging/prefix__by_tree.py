class PrefixCache:
    def __init__(self, block_size):
        self.size = block_size
        self.root = {}  # a block's tokens -> (its number, what follows it)

    def _full(self, tokens):
        n = len(tokens) - len(tokens) % self.size
        return [tuple(tokens[i : i + self.size]) for i in range(0, n, self.size)]

    def insert(self, tokens, table):
        node = self.root
        for words, block in zip(self._full(tokens), table):
            if words not in node:
                node[words] = (block, {})
            node = node[words][1]

    def match(self, tokens):
        node, blocks = self.root, []
        for words in self._full(tokens[:-1]):
            if words not in node:
                return blocks
            block, node = node[words]
            blocks.append(block)
        return blocks
