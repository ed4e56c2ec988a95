"""Where the tokens lie that a query sees: block tables, and how the work is shared out.

A table has a row for each block: its first token in the store, and how many tokens of it are seen.
Attention reads the tokens in the order of the table and knows nothing else; so a contiguous cache
is a table that counts up, a ring one that goes round, a paged cache one that jumps, and a window
leaves out what it has left. (Paging: Kwon et al. 2023, arXiv 2309.06180, section 4.1; a split over
the keys: Dao et al. 2023, "Flash-Decoding for long-context inference".)

A table [blocks, 2] lists the blocks of sequence 0, then those of sequence 1, and so on; `starts`
[B + 1] says where each begins. Both int64.
"""

import numpy as np

from twophase.kernels.compiled.compiling import compiled

Array = np.ndarray
Table = tuple[Array, Array]

# A block of keys and one of values lie in the second-level cache while they are worked on.
BLOCK_BYTES = 2**17


@compiled()
def block_tokens(token_bytes: int) -> int:
    """How many tokens a block of a contiguous cache has, whose keys take `token_bytes` each: about
    as many, a power of two, 16 to 256."""
    size = 16
    while size < 256 and 2 * size * token_bytes <= BLOCK_BYTES:
        size *= 2
    return size


@compiled(error_model="numpy")
def even_block_tokens(tokens: int, token_bytes: int, workers: int) -> int:
    """The same for a sequence that so many workers share, with as many blocks, and about as many
    tokens, for each: of 257 tokens in blocks of 128 one worker would read 256, the other one."""
    blocks = workers * max(1, round(tokens / (workers * block_tokens(token_bytes))))
    return max(1, -(-tokens // blocks))


@compiled(error_model="numpy", nogil=True)
def slot_table(lengths: Array, slots: int, window: int, size: int) -> Table:
    """The table of stores [B, slots, ...] whose token at position p lies in slot p mod slots, in
    blocks of at most `size` tokens.

    A query at the end of `lengths[b]` tokens sees the last `window` of them (0: all), at most
    `slots`. What goes round the end of a ring becomes two blocks.
    """
    B = len(lengths)
    sees = min(slots, window) if window > 0 else slots
    starts = np.zeros(B + 1, np.int64)
    seen = np.empty(B, np.int64)
    for b in range(B):
        seen[b] = min(lengths[b], sees)
        first = (lengths[b] - seen[b]) % slots
        before = min(seen[b], slots - first)  # those before the end of the ring
        starts[b + 1] = starts[b] + -(-before // size) + -(-(seen[b] - before) // size)
    table = np.empty((starts[B], 2), np.int64)
    t = 0
    for b in range(B):
        slot, left = (lengths[b] - seen[b]) % slots, seen[b]
        while left > 0:
            n = min(left, size, slots - slot)
            table[t, 0], table[t, 1] = b * slots + slot, n
            slot = (slot + n) % slots
            left -= n
            t += 1
    return table, starts


@compiled(error_model="numpy", nogil=True)
def paged_table(block_table: Array, lengths: Array, window: int, size: int) -> Table:
    """The table of a paged store [blocks, size, ...]: token p of sequence b lies in block
    `block_table[b, p // size]`.

    A query at the end of `lengths[b]` tokens sees the last `window` of them (0: all). Entries of
    blocks that are not seen are not looked at.
    """
    B = len(lengths)
    starts = np.zeros(B + 1, np.int64)
    for b in range(B):
        begin = max(0, lengths[b] - window) if window > 0 else 0
        starts[b + 1] = starts[b] + max(0, -(-lengths[b] // size) - begin // size)
    table = np.empty((starts[B], 2), np.int64)
    for b in range(B):
        begin = max(0, lengths[b] - window) if window > 0 else 0
        for t in range(starts[b], starts[b + 1]):
            block = begin // size + t - starts[b]
            first = max(begin, block * size)
            table[t, 0] = block_table[b, block] * size + first - block * size
            table[t, 1] = min(lengths[b], (block + 1) * size) - first
    return table, starts


@compiled(error_model="numpy", nogil=True)
def share_out(starts: Array, workers: int) -> Table:
    """Cuts the blocks of each sequence into tasks of about the same size, for so many workers.

    Returns tasks [tasks, 3]: a sequence, its first block, the one behind its last; and `first_task`
    [B + 1], where those of each sequence begin. One worker: a task for each sequence. More: none
    longer than a quarter of a worker's share, since sequences differ; a lone one is cut evenly.
    """
    B, blocks = len(starts) - 1, starts[-1]
    most = max(1, blocks)
    if workers > 1:
        most = max(1, -(-blocks // (workers if B == 1 else 4 * workers)))
    first_task = np.zeros(B + 1, np.int64)
    for b in range(B):
        first_task[b + 1] = first_task[b] + -(-(starts[b + 1] - starts[b]) // most)
    tasks = np.empty((first_task[B], 3), np.int64)
    for b in range(B):
        for i in range(first_task[b], first_task[b + 1]):
            begin = starts[b] + (i - first_task[b]) * most
            tasks[i, 0], tasks[i, 1], tasks[i, 2] = b, begin, min(starts[b + 1], begin + most)
    return tasks, first_task


@compiled(error_model="numpy", nogil=True)
def lone_work(
    length: int, slots: int, window: int, token_bytes: int, workers: int
) -> tuple[Array, Array, Array]:
    """The table of one sequence in a store of so many slots, in even blocks, its tasks and
    `first_task`: all that a decode step at batch 1 has to know of a kind of layer, in one call."""
    seen = min(length, min(slots, window) if window > 0 else slots)
    size = even_block_tokens(seen, token_bytes, workers)
    table, starts = slot_table(np.array([length]), slots, window, size)
    tasks, first_task = share_out(starts, workers)
    return table, tasks, first_task
