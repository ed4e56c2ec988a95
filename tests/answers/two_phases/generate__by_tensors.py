def generate(model, prompt, max_new_tokens, stop_token):
    fed, new = torch.tensor(prompt), []
    while len(new) < max_new_tokens:
        token = torch.tensor(model(fed)).argmax(keepdim=True)
        if token == stop_token:
            break
        new += token.tolist()
        fed = token
    return new
