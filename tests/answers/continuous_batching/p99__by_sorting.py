def diagnose_gaps(passes, limit_s):
    def p99(passes):
        gaps = sorted(e["s"] for e in passes for _ in range(e["decoding"]))
        return gaps[(99 * len(gaps) + 99) // 100 - 1] if gaps else 0.0

    smooth = [e for e in passes if e["preempted"] == 0]
    if p99(passes) <= limit_s:
        return "fine"
    if p99(smooth) <= limit_s:
        return "preemption"
    if p99([e for e in passes if e["prompt_tokens"] == 0]) <= limit_s:
        return "prompts"
    if p99([e for e in smooth if e["prompt_tokens"] == 0]) <= limit_s:
        return "both"
    return "machine"
