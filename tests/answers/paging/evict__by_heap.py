import heapq


def evict(blocks, n):
    known = {b["id"]: b for b in blocks}
    children = dict.fromkeys(known, 0)
    for b in blocks:
        if b["parent"] is not None:
            children[b["parent"]] += 1
    heap = []

    def offer(block_id):
        b = known[block_id]
        if children[block_id] == 0 and b["readers"] == 0:
            heapq.heappush(heap, (b["used_s"], block_id))

    for block_id in known:
        offer(block_id)
    gone = []
    while heap and len(gone) < n:
        _, block_id = heapq.heappop(heap)
        gone.append(block_id)
        parent = known[block_id]["parent"]
        if parent is not None:
            children[parent] -= 1
            offer(parent)
    return gone
