def diagnose_gaps(passes, limit_s):
    def kept(no_preemption, no_prompt):
        """Without passes that have a preemption, without those that read prompts."""
        late = all_gaps = 0
        for e in passes:
            if (no_preemption and e["preempted"] > 0) or (no_prompt and e["prompt_tokens"] > 0):
                continue
            all_gaps += e["decoding"]
            if e["s"] > limit_s:
                late += e["decoding"]
        return late <= all_gaps / 100

    tries = {
        "fine": (False, False),
        "preemption": (True, False),
        "prompts": (False, True),
        "both": (True, True),
    }
    for label, left_out in tries.items():
        if kept(*left_out):
            return label
    return "machine"
