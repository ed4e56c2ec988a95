def generate(model, prompt, max_new_tokens, stop_token):
    out, pending = [], list(prompt)
    while len(out) < max_new_tokens:
        scores = torch.tensor(model(pending))
        token = int(scores.argmax())
        if token == stop_token:
            return out
        out.append(token)
        pending = [token]
    return out
