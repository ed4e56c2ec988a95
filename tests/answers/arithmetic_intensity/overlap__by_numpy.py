def step_times(kernels, flops_per_s, bytes_per_s):
    t = np.array(kernels) / np.array([flops_per_s, bytes_per_s])
    return t.sum(0).max(), t.max(1).sum(), t.sum()
