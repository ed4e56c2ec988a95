def step_s(B, n_params, bits, group, bytes_per_s, flops_per_s):
    codes = n_params * bits / 8
    scales = n_params / group * 2
    reading = (codes + scales) / bytes_per_s
    computing = n_params * B * 2 / flops_per_s
    return reading if reading > computing else computing
