def per_call(acceptances):
    kept, whole = 0.0, 1.0
    for a in reversed(acceptances):
        kept = a * (1 + kept)
        whole = whole * a
    return {"tokens": 1 + kept, "all": whole, "wasted": len(acceptances) - kept}
