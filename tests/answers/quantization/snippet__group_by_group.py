def expose():
    return [
        {"weight": [[3.0, -3.0, 1.0], [2.0, -1.0, 0.5]], "group_size": 2, "bits": 8},
        {"weight": [[5.0, 5.2, 5.5]], "group_size": 3, "bits": 4},
    ]


def quantize_group(weight, group_size=128, bits=4):
    codes, scales, lows = [], [], []
    for start in range(0, weight.shape[1], group_size):
        part = weight[:, start : start + group_size]
        low = torch.min(part, dim=1, keepdim=True)[0]
        span = torch.max(part, dim=1, keepdim=True)[0] - low
        scale = torch.where(span > 0, span / (2**bits - 1), 1.0)
        codes.append(torch.round((part - low) / scale))
        scales.append(scale)
        lows.append(low)
    return torch.cat(codes, dim=1).to(torch.uint8), torch.cat(scales, dim=1), torch.cat(lows, dim=1)
