import torch


def attend(q, keys, values, tables, lengths):
    """Online softmax over the blocks, in float64."""
    B, N, H = q.shape
    size, K = keys.shape[1:3]
    out = torch.zeros(B, N, H, dtype=torch.float64)
    for b in range(B):
        for i in range(N):
            head = i * K // N
            top, total, acc = float("-inf"), 0.0, torch.zeros(H, dtype=torch.float64)
            for j, block in enumerate(tables[b]):
                n = min(size, lengths[b] - j * size)
                if n <= 0:
                    break
                k = keys[block, :n, head].double()
                scores = k @ q[b, i].double() / H**0.5
                new = max(top, float(scores.max()))
                shrink = 0.0 if top == float("-inf") else float(torch.tensor(top - new).exp())
                weights = (scores - new).exp()
                total = total * shrink + float(weights.sum())
                acc = acc * shrink + weights @ values[block, :n, head].double()
                top = new
            out[b, i] = acc / total
    return out.to(q.dtype)
