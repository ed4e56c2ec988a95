def per_call(acceptances):
    n = len(acceptances)
    stays = [math.prod(acceptances[: i + 1]) for i in range(n)]
    kept = sum(stays)
    return {"tokens": kept + 1, "all": math.prod(acceptances), "wasted": n - kept}
