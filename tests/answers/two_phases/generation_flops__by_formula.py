def generation_flops(n_params, n_prompt, n_output, cached):
    first, last = n_prompt, n_prompt + n_output - 1
    tokens = last if cached else (first + last) * n_output / 2
    return 2.0 * n_params * tokens
