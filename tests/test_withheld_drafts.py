"""Parts of the library that make an answer to an exercise of pruning or of speculative decoding,
put together, are no answer where the official grader asks."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import math\nimport numpy as np\nimport torch\n"
AFTER = """
def after(model, kept, B, S, bytes_per_number, bytes_per_s):
    m = {**model, **kept}
    m["N"] = model["N"] // model["K"] * m["K"]
    numbers = counted(**m)
    held, cache = numbers * bytes_per_number, 2 * m["L"] * m["K"] * m["H"] * S * bytes_per_number
    return {"params": numbers, "bytes": held, "step_s": (held + B * cache) / bytes_per_s}
"""
ROLLBACK = """
from twophase.kernels.span import Span
def keep(cache, lengths, kept):
    B, S, H = cache.shape
    moved, ends = cache.clone(), [n + len(k) for n, k in zip(lengths, kept)]
    span = Span(tuple(lengths), (0,) * B, 1)
    move(moved, span, kept)
    for b, end in enumerate(ends):
        moved[b, end:] = 0
    return moved, ends
"""
PRICE = """
def verify_price(weight_bytes, cache_bytes, token_flops, B, gamma, bytes_per_s, flops_per_s):
    plain, verify = (
        step_s(weight_bytes, B, cache_bytes, n * B * token_flops, bytes_per_s, flops_per_s)
        for n in (1, gamma + 1)
    )
    return {"plain_s": plain, "verify_s": verify, "ratio": verify / plain}
"""
LOOKUP = """
def lookup(text, n, longest):
    back = text[::-1]  # what two texts end with, turned round they begin with it
    ends = range(len(text) - 1, 0, -1)
    size, end = max(((min(alike(back, text[:e][::-1]), longest), e) for e in ends), default=(0, 0))
    return text[end : end + n] if size else []
"""
TOGETHER = {  # (exercise, what it is made of): the source
    ("pruning-predict", "the parts of a layer"): AFTER
    + """
from twophase.theory.params import attention_params, embedding_params, mlp_params
def counted(L, D, F, N, K, H, V):
    mlp = mlp_params(D, F) if F else 0
    return embedding_params(V, D) + L * (attention_params(D, N, K, H) + mlp)
""",
    ("pruning-predict", "a whole model's count"): AFTER
    + """
from twophase.theory.count import breakdown
from twophase.theory.sizes import Sizes
def counted(L, D, F, N, K, H, V):
    parts = breakdown(Sizes("left", max(L, 1), D, max(F, 1), N, K, H, V, tied_embeddings=True))
    layers = parts["attention"] + parts["mlp"] * (F > 0)
    return parts["embedding"] + (layers if L else 0)
""",
    ("pruning-predict", "layers that hold nothing"): AFTER
    + """
from twophase.models.attention import GroupedQueryAttention
from twophase.models.config import Config
from twophase.models.mlp import GatedMLP
def counted(L, D, F, N, K, H, V):
    c = Config(L=1, D=D, F=max(F, 1), N=N, K=K, H=H + H % 2)
    with torch.device("meta"):
        layers = GroupedQueryAttention(c, 0), GatedMLP(c)
    attention, mlp = (sum(p.numel() for p in layer.parameters()) for layer in layers)
    return V * D + L * (attention * H // (H + H % 2) + mlp * (F > 0))
""",
    ("pruning-cut_heads", "a rank for each head"): """
from twophase.kernels.sharding import head_parts
def cut_heads(q, k, v, o, H, kept):
    N, K = len(q) // H, len(k) // H
    parts = [head_parts(q, k, v, o, H, h, N) for h in kept]
    first = [i for i, h in enumerate(kept) if not i or kept[i - 1] // (N // K) != h // (N // K)]
    keys, values = (torch.cat([parts[i][j] for i in first]) for j in (1, 2))
    queries, out = torch.cat([p.wq for p in parts]), torch.cat([p.wo for p in parts], dim=1)
    return queries, keys, values, out
""",
    ("pruning-stored", "the file's own bytes"): """
from twophase.kernels.pruning.storage import Bitmap, TwoFour
def stored_bytes(n, n_zero, bytes_per_number, bytes_per_index):
    nothing = torch.zeros(1, 8)
    bits, places = Bitmap.of(nothing).bits.nbytes, TwoFour.of(nothing).places.nbytes
    left = n - n_zero
    return {
        "dense": n * bytes_per_number,
        "bitmap": left * bytes_per_number + n * bits / 8,
        "indexed": left * (bytes_per_number + bytes_per_index),
        "two_four": n / 2 * bytes_per_number + n * places / 8,
    }
""",
    ("speculative_decoding-rollback", "a cache of latents"): ROLLBACK
    + """
from twophase.kernels.latent_attention import LatentCache
def move(moved, span, kept):
    store = LatentCache(1, 1, 1, 1)
    store.held = (moved,)
    store.move(span, kept)
""",
    ("speculative_decoding-rollback", "the move of any store"): ROLLBACK
    + """
import types
from twophase.kernels.kv_cache import SlotStore
def move(moved, span, kept):
    SlotStore.move(types.SimpleNamespace(held=(moved,)), span, kept)
""",
    ("speculative_decoding-verify_price", "traffic beside arithmetic"): PRICE
    + """
from twophase.theory.arithmetic_intensity import time_overlapped_s
def step_s(weight_bytes, B, cache_bytes, flops, bytes_per_s, flops_per_s):
    return time_overlapped_s(flops, weight_bytes + B * cache_bytes, flops_per_s, bytes_per_s)
""",
    ("speculative_decoding-verify_price", "a step of the planner's"): PRICE
    + """
from twophase.theory.latency_throughput import step_time_s as step_s
""",
    ("speculative_decoding-verify_price", "a chip's load"): PRICE
    + """
from types import SimpleNamespace
from twophase.theory.sharded_pass import Load
def step_s(weight_bytes, B, cache_bytes, flops, bytes_per_s, flops_per_s):
    chip = SimpleNamespace(hbm_bytes_per_s=bytes_per_s, peak_flops_per_s=lambda dtype: flops_per_s)
    return Load(0, 0, weight_bytes, B * cache_bytes, flops, ()).work_s(chip)
""",
    ("speculative_decoding-verify_price", "a sharded machine's times"): PRICE
    + """
from types import SimpleNamespace
from twophase.theory.sharded_deployment import ShardedDeployment
def step_s(weight_bytes, B, cache_bytes, flops, bytes_per_s, flops_per_s):
    chip = SimpleNamespace(hbm_bytes_per_s=bytes_per_s, peak_flops_per_s=lambda dtype: flops_per_s)
    w, load = SimpleNamespace(compute=""), SimpleNamespace(sending_s=lambda *links: 0.0)
    machine = SimpleNamespace(chip=chip, w=w, link=None, between=None)
    read = weight_bytes + B * cache_bytes
    return ShardedDeployment._loaded(machine, load, read, flops).overlapped_s
""",
    ("speculative_decoding-verify_price", "a product of codes"): PRICE
    + """
from twophase.theory.quantization import weights_step_s
def step_s(weight_bytes, B, cache_bytes, flops, bytes_per_s, flops_per_s):
    bits = 16 * (weight_bytes + B * cache_bytes) / flops
    return weights_step_s(1, flops / 2, bits, bytes_per_s, flops_per_s)
""",
    ("speculative_decoding-verify_price", "a place under the roof"): PRICE
    + """
from twophase.theory.arithmetic_intensity import roofline_flops_per_s
def step_s(weight_bytes, B, cache_bytes, flops, bytes_per_s, flops_per_s):
    intensity = flops / (weight_bytes + B * cache_bytes)
    return flops / roofline_flops_per_s(intensity, flops_per_s, bytes_per_s)
""",
    ("speculative_decoding-lookup", "what a cache shares with a text"): LOOKUP
    + """
from twophase.models.speculative_decoding.drafts import _shared
def alike(one, other):
    return _shared(one, [*other, None])
""",
    ("speculative_decoding-lookup", "a step down a tree of prefixes"): LOOKUP
    + """
from types import SimpleNamespace
from twophase.serving.radix import _closest
def alike(one, other):
    child = SimpleNamespace(tokens=other)
    return _closest(SimpleNamespace(children={one[0]: [child]}), one)[1]
""",
    ("speculative_decoding-lookup", "the keys of equal prefixes"): LOOKUP
    + """
from twophase.serving.prefixes import prefix_keys
def alike(one, other):
    return sum(a == b for a, b in zip(prefix_keys(one, 1), prefix_keys(other, 1)))
""",
    ("pruning-distill", "what draft heads learn by"): """
from twophase.models.speculative_decoding.train_heads import _apart
def distillation_loss(student, teacher, temperature):
    own, taught = student / temperature, teacher / temperature
    laws = taught.log_softmax(-1)
    return (_apart(own, laws) - _apart(taught, laws)) * temperature**2
""",
    ("speculative_decoding-accept", "a tree of one token"): """
from twophase.kernels.speculative_decoding import verify_tree
def judge_token(target_probs, draft_probs, token, choose):
    t, d = (torch.tensor([p], dtype=torch.float64) for p in (target_probs, draft_probs))
    found = verify_tree(torch.cat([t, t]), d, [token], [-1], choose)
    return (True, token) if found.kept else (False, found.token)
""",
}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id, made_of])
