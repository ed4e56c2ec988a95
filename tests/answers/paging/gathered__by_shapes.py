import math


def moved_bytes(lengths, block_size, K, H, bytes_per_number):
    def size(*shape):
        return bytes_per_number * math.prod(shape)

    most = sorted(lengths)[-1]
    row = most + (-most) % block_size
    alone = [size(2, n, K, H) for n in lengths]
    return {
        "in_place": sum(alone),
        "one_by_one": sum(3 * one for one in alone),
        "padded": 3 * size(2, len(lengths), row, K, H),
    }
