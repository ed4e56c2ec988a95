def bytes_read(model, B, S, bytes_per_value):
    D, heads, kv = model["D"], model["N"] * model["H"], model["K"] * model["H"]
    read = [torch.Size([model["V"], D]), torch.Size([D])]
    if not model["tied"]:
        read.append(torch.Size([B, D]))
    for _ in range(model["L"]):
        read += [torch.Size(s) for s in ([heads, D], [kv, D], [kv, D], [D, heads], [D], [D])]
        read += [torch.Size([model["F"], D])] * 3
        read += [torch.Size([B, S + 1, model["K"], model["H"]])] * 2
    return torch.tensor([s.numel() * bytes_per_value for s in read]).sum()
