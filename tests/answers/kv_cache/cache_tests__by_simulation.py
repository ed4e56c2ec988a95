def cache_tests():
    scripts = []
    for S_max in (1, 4, 6):
        held, steps, token = [], [], 0
        for T in (1, 2, 3, 1, 4, 1, 1, None, 3, 1, 2, 1):
            if T is None:
                held = []
                steps.append("reset")
                continue
            new = list(range(token, token + T))
            token += T
            if len(held) + T <= S_max:
                held = held + new
                steps.append([new, held])
            else:
                steps.append([new, "refused"])
        scripts.append({"S_max": S_max, "steps": steps})
    return scripts
