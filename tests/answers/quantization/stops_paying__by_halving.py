def stops_paying(bits, group, flops_per_s, bytes_per_s):
    def pays(B):  # reading takes longer than computing, both times 8 * group * C * W
        return (bits * group + 16) * flops_per_s > 16 * B * group * bytes_per_s

    low, high = 0, 1
    while pays(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return high
