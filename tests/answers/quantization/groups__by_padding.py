def quantize(w, group, bits):
    O, I = w.shape
    padded = torch.nn.functional.pad(w, (0, -I % group)).reshape(O, -1, group)  # [O, groups, group]
    last = 2 ** (bits - 1) - 1
    scales = (padded.abs().max(-1, keepdim=True).values / last).to(torch.float16)
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    codes = torch.clamp(torch.round(padded / scales.float()), -last, last)
    return codes.reshape(O, -1)[:, :I].to(torch.int8), scales[:, :, 0]
