def burstiness(times_s):
    n = len(times_s) - 1
    if n < 1:
        return None
    span = times_s[-1] - times_s[0]
    squares = 0
    for i in range(n):
        squares += (times_s[i + 1] - times_s[i]) ** 2
    return {"per_s": n / span, "burstiness": n * squares / span**2 - 1}
