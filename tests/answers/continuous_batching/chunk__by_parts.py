def largest_chunk(read_bytes, token_flops, bytes_per_s, flops_per_s, B, prompt, limit_s):
    room = math.floor(limit_s / (token_flops / flops_per_s)) - B
    if read_bytes > limit_s * bytes_per_s or room < 0:
        return {"chunk": None, "passes": None}
    if room == 0:
        return {"chunk": 0, "passes": None}
    if room >= prompt:
        return {"chunk": prompt, "passes": 1}
    return {"chunk": room, "passes": math.ceil(prompt / room)}
