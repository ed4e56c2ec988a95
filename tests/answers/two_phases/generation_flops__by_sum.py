def generation_flops(n_params, n_prompt, n_output, cached):
    if cached:
        calls = [n_prompt] + [1] * (n_output - 1)
    else:
        calls = [n_prompt + i for i in range(n_output)]
    return sum(2 * n_params * tokens for tokens in calls)
