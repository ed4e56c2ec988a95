"""Parts of the library put together, or asked one query at a time, are no answer to an exercise of
attention or quantization: the official worker has none of them."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import torch\n"
ONE_READ = """
def shared_attention(q, read, K):
    outs = []
    for group, kept in zip(q.chunk(K, dim=1), map(read, range(K))):
        k, v = (x[:, None] for x in kept)  # [S, 1, H]
        ends = range(len(k) - len(q) + 1, len(k) + 1)
        heads = [one(group[t], k[:end], v[:end]) for t, end in enumerate(ends)]
        outs.append(torch.stack(heads))  # [T, G, H]
    return torch.cat(outs, dim=1)  # [T, N, H]
"""
LATENTS = """
def attend(q_latent, q_rope, latent, k_rope, scale):
    q, k = torch.cat([q_latent, q_rope], -1), torch.cat([latent, k_rope], -1)[:, :, None]
    T, S = q.shape[1], k.shape[1]
    outs = [one(q[:, t : t + 1], k[:, : S - T + t + 1], latent, scale) for t in range(T)]
    return torch.cat(outs, dim=1)
"""
TOGETHER = {  # (exercise, what it is made of): the source
    ("grouped_query_attention-one_read", "unmasked attention"): ONE_READ
    + """
from twophase.kernels.attention import full_attention
def one(q, k, v):
    return full_attention(q[None, None], k[None], v[None])[0, 0]
""",
    ("grouped_query_attention-one_read", "a private part"): ONE_READ
    + """
from twophase.kernels import attention
def one(q, k, v):
    return attention._attend(q[None, None], k[None], v[None], None, None, None)[0, 0]
""",
    ("grouped_query_attention-one_read", "latents that are keys and values"): ONE_READ
    + """
from twophase.kernels.latent_attention import absorbed_attention
def one(q, k, v):
    (G, H), S = q.shape, len(k)
    up = torch.eye(2 * H).expand(G, -1, -1)
    latent, nothing = torch.cat([k, v], -1)[None, :, 0], torch.zeros(1, S, 2)
    rotated = torch.zeros(1, 1, G, 2)
    parts = latent, nothing, up[:, :H], up[:, H:]
    return absorbed_attention(q[None, None], rotated, *parts, scale=H**-0.5)[0, 0]
""",
    ("grouped_query_attention-one_read", "sums of latents"): ONE_READ
    + """
from twophase.kernels.latent_attention import attend_latents
def one(q, k, v):
    (G, H), S = q.shape, len(k)
    latent, wide = torch.cat([k, v], -1)[None, :, 0], torch.cat([q, 0 * q], -1)
    rotated, nothing = torch.zeros(1, 1, G, 2), torch.zeros(1, S, 2)
    return attend_latents(wide[None, None], rotated, latent, nothing, scale=H**-0.5)[0, 0, :, H:]
""",
    ("latent_attention-attend", "unmasked attention"): LATENTS
    + """
from twophase.kernels.attention import full_attention
def one(q, k, latent, scale):
    return full_attention(q, k, latent[:, : k.shape[1], None], scale=scale)
""",
    ("latent_attention-attend", "a decode step of the chapter before"): LATENTS
    + """
from twophase.kernels.grouped_query_attention import decode_by_head
def one(q, k, latent, scale):
    H, R = q.shape[3], latent.shape[2]
    q = q * scale * H**0.5
    return torch.stack([decode_by_head(a[0], b, b) for a, b in zip(q, k)])[:, None, :, :R]
""",
    ("speculative_decoding-accept", "the verdict on a tree of one token"): """
from twophase.kernels.speculative_decoding import ROOT, verify_tree
def judge_token(target_probs, draft_probs, token, choose):
    target = torch.tensor([target_probs, target_probs], dtype=torch.float64)
    draft = torch.tensor([draft_probs], dtype=torch.float64)
    found = verify_tree(target, draft, [token], [ROOT], choose)
    return (True, token) if found.kept else (False, found.token)
""",
    ("local_attention-mask", "weights of identity values"): """
from twophase.kernels.attention import causal_attention
def window_mask(T, S, window):
    # with a gradient: a road of its own, past `visible`
    q = torch.zeros(1, S, 1, S, requires_grad=True)
    v = torch.eye(S)[None, :, None]
    return causal_attention(q, q.detach(), v, window=window)[0, S - T :, 0] > 0
""",
    ("quantization-groups", "GPTQ of independent inputs"): """
from twophase.kernels.quantization import gptq
def quantize(w, group, bits):
    how = gptq.IntegerFormat(bits, group)
    found = gptq.gptq(w, torch.eye(w.shape[1]), how)
    codes, _ = found.unpacked()
    return (codes.short() - how.half).to(torch.int8), found.scales
""",
    ("local_attention-mask", "the mask of the training kernel"): """
from twophase.kernels import attention_training
def window_mask(T, S, window):
    return attention_training._mask(S - T, S, 0, S, window, torch.zeros(1)) == 0
""",
}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id, made_of])
