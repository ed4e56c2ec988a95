def absorb(w_q, w_uk, w_uv, w_o):
    w_qk = torch.matmul(w_q.transpose(1, 2), w_uk).transpose(1, 2).contiguous()
    w_vo = torch.bmm(w_o.permute(1, 0, 2).double(), w_uv.double()).float()
    return [w_qk, w_vo]
