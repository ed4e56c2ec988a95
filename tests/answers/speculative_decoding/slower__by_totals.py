def diagnose(calls, step_s):
    def saves(of, draft=1, verify_s=None):
        made = sum(c["kept"] for c in of) + len(of)
        spent = sum(
            draft * c["draft_s"] + (c["verify_s"] if verify_s is None else verify_s) for c in of
        )
        return made * step_s > spent

    if saves(calls):
        return "faster"
    if saves(calls[1:]):
        return "warm-up"
    if saves(calls, draft=0):
        return "draft"
    return "verification" if saves(calls, verify_s=step_s) else "acceptance"
