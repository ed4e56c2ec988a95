def after(model, kept, B, S, bytes_per_number, bytes_per_s):
    new = {name: kept[name] if name in kept else size for name, size in model.items()}
    share = new["K"] / model["K"]
    heads = (model["N"] * share + new["K"]) * model["H"]
    params = new["D"] * (new["V"] + new["L"] * (2 * heads + 3 * new["F"]))
    step_s = params * bytes_per_number / bytes_per_s
    for _ in range(2):  # keys, values
        step_s += B * S * new["L"] * new["K"] * new["H"] * bytes_per_number / bytes_per_s
    return {"params": params, "bytes": params * bytes_per_number, "step_s": step_s}
