def padding(prompts, answers):
    padded = [sum(max(x) - n for n in x) for x in (prompts, answers)]
    places = [len(x) * max(x) for x in (prompts, answers)]
    return {
        "prompts": padded[0] / places[0],
        "answers": padded[1] / places[1],
        "both": sum(padded) / sum(places),
    }
