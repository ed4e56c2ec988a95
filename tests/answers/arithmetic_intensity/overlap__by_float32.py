def step_times(kernels, flops_per_s, bytes_per_s):
    compute, traffic = (torch.tensor(kernels) / torch.tensor([flops_per_s, bytes_per_s])).unbind(1)
    both = compute + traffic
    return torch.stack(
        [torch.max(compute.sum(), traffic.sum()), torch.maximum(compute, traffic).sum(), both.sum()]
    )
