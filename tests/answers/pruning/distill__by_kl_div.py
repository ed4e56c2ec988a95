def distillation_loss(student, teacher, temperature):
    s, t = (torch.log_softmax(x / temperature, dim=-1) for x in (student, teacher))
    kl = torch.nn.functional.kl_div(s, t, reduction="batchmean", log_target=True)
    return temperature * temperature * kl
