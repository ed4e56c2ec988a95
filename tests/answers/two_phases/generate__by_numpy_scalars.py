def generate(model, prompt, max_new_tokens, stop_token):
    new = []
    for _ in range(max_new_tokens):
        token = np.argmax(model(prompt if not new else new[-1:]))
        if token == stop_token:
            break
        new.append(token)
    return tuple(new)
