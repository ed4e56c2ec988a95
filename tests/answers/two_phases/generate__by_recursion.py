def generate(model, prompt, max_new_tokens, stop_token):
    if max_new_tokens == 0:
        return []
    token = int(np.argmax(model(prompt)))
    if token == stop_token:
        return []
    return [token] + generate(model, [token], max_new_tokens - 1, stop_token)
