def distillation_loss(student, teacher, temperature):
    total = 0.0
    for s, t in zip(student.double() / temperature, teacher.double() / temperature):
        log_s = s - torch.logsumexp(s, 0)
        log_t = t - torch.logsumexp(t, 0)
        total += float((log_t.exp() * (log_t - log_s)).sum())
    return total / len(student) * temperature**2
