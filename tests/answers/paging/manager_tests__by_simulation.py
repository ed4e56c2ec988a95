def manager_tests():
    """The expectations come from sets of readers."""

    def case(n_blocks, size, *ops):
        readers = [set() for _ in range(n_blocks)]
        tables, lengths = {}, {}
        copies = refused = 0

        def free():
            return [i for i, names in enumerate(readers) if not names]

        for what, seq, *more in ops:
            if what == "allocate":
                n = -(-more[0] // size)
                if n > len(free()):
                    refused += 1
                    continue
                tables[seq], lengths[seq] = free()[:n], more[0]
                for block in tables[seq]:
                    readers[block].add(seq)
            elif what == "fork":
                tables[more[0]], lengths[more[0]] = list(tables[seq]), lengths[seq]
                for block in tables[seq]:
                    readers[block].add(more[0])
            elif what == "free":
                for block in tables.pop(seq):
                    readers[block].discard(seq)
            else:
                full = lengths[seq] % size == 0
                shared = len(readers[tables[seq][-1]]) > 1
                if (full or shared) and not free():
                    refused += 1
                    continue
                lengths[seq] += 1
                if full or shared:
                    new = free()[0]
                    if not full:
                        copies += 1
                        readers[tables[seq].pop()].discard(seq)
                    readers[new].add(seq)
                    tables[seq].append(new)
        return {
            "n_blocks": n_blocks,
            "block_size": size,
            "ops": [list(op) for op in ops],
            "free": len(free()),
            "copies": copies,
            "refused": refused,
        }

    start = ("allocate", "a", 5), ("fork", "a", "b"), ("fork", "a", "c")
    appends = [("append", x) for x in "abcabcabc"]
    frees = [("free", x) for x in "cab"]
    return [
        case(9, 3, *start, *appends, *frees, ("allocate", "z", 27)),
        case(4, 3, *start, *appends, *frees, ("allocate", "z", 13), ("allocate", "z", 12)),
        case(2, 3, *start, ("append", "a"), ("free", "a"), ("free", "b"), ("append", "c")),
        case(4, 3, *start, ("free", "a"), ("allocate", "z", 6), ("append", "z")),
        case(9, 3, *start, ("append", "a")),
    ]
