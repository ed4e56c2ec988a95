def speculate(model, rollback, draft, prompt, n_new, gamma):
    text = list(prompt)
    end = len(prompt) + n_new
    text.append(model(list(prompt))[-1])
    while len(text) < end:
        room = end - len(text) - 1
        drafted = list(draft(list(text), min(gamma, room))) if min(gamma, room) > 0 else []
        best = model(text[-1:] + drafted)
        kept = next((i for i, token in enumerate(drafted) if token != best[i]), len(drafted))
        refused = len(drafted) - kept
        if refused:
            rollback(refused)
        text.extend(drafted[:kept])
        text.append(best[kept])
    return text[len(prompt) :]
