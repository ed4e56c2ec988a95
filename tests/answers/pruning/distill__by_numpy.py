def log_law(logits, temperature):
    x = logits.numpy() / np.float32(temperature)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def distillation_loss(student, teacher, temperature):
    said, taught = log_law(student, temperature), log_law(teacher, temperature)
    apart = (np.exp(taught) * (taught - said)).sum(axis=-1)
    return np.mean(apart) * np.float32(temperature**2)  # a number of numpy's
