def speculate(model, rollback, draft, prompt, n_new, gamma):
    said = model(prompt)[-1:]
    while n_new > len(said):
        drafted = []
        if n_new - len(said) > 1 and gamma > 0:
            drafted = draft(prompt + said, min(gamma, n_new - len(said) - 1))
        answers = iter(model(said[-1:] + drafted))
        unread = len(drafted)
        for token in drafted:
            answer = next(answers)
            said.append(answer)
            if answer != token:
                rollback(unread)
                break
            unread -= 1
        else:
            said.append(next(answers))
    return said
