def padding(prompts, answers):
    p, a = np.array(prompts), np.array(answers)
    return {
        "prompts": 1 - p.mean() / p.max(),
        "answers": 1 - a.mean() / a.max(),
        "both": 1 - (p + a).mean() / (p.max() + a.max()),
    }
