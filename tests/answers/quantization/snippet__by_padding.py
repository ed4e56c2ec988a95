def expose():
    wraps = {"weight": [[1, -1, 1, -1]], "group_size": 4, "bits": 8}
    mixes = {"weight": [[1, 2, 3], [4, 6, 5]], "group_size": 6, "bits": 3}
    wastes = {"weight": [[-50, -50.5, -51, -51.4]], "group_size": 4, "bits": 2}
    return (wraps, mixes, wastes)


def quantize_group(weight, group_size=128, bits=4):
    O, I = weight.shape
    last = weight[:, -1:].expand(O, -I % group_size)  # changes neither least nor largest
    groups = torch.cat([weight, last], dim=1).reshape(O, -1, group_size)  # [O, groups, size]
    lows, highs = groups.min(dim=2).values, groups.max(dim=2).values
    scales = (highs - lows) / (2**bits - 1)
    scales[scales == 0] = 1
    codes = torch.round((groups - lows[:, :, None]) / scales[:, :, None])
    return codes.reshape(O, -1)[:, :I].to(torch.uint8), scales, lows
