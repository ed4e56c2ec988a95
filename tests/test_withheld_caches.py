"""Parts of the library that make an answer to an exercise of chapters 3 or 6, put together, are no
answer where the official grader asks."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import math\nimport types\nimport numpy as np\nimport torch\n"
ROPE = """
def angles_of(start, T, width, theta):
    angles = np.arange(start, start + T)[:, None] * theta ** (-np.arange(0, width, 2) / width)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)  # [T, width/2]
"""
TURN = (
    ROPE
    + """
from twophase.kernels.compiled.rope import turn as turn_one
def turned(x, start, theta):
    out = x.clone().numpy()
    cos, sin = angles_of(start, out.shape[1], out.shape[-1], theta)
    for b, t, *head in np.ndindex(out.shape[:-1]):
        turn_one(out[(b, t, *head)], 0, cos[t], sin[t], False)
    return torch.from_numpy(out)
"""
)
PAGES = """
from twophase.kernels.paging import FlatSpan, PagedKV
def pages_of(B, S_max, K, H, dtype):
    made = PagedKV.__new__(PagedKV)
    made.held = tuple(torch.zeros(B, S_max, K, H, dtype=dtype) for _ in range(2))
    return made
def add(pages, whose, lengths, k, v, n_new):
    on = [i for i, n in enumerate(n_new) if n]
    if not on:
        return
    starts, counts = (tuple(x[i] for i in on) for x in ([lengths[b] for b in whose], n_new))
    tables = tuple((whose[i],) for i in on)
    span = FlatSpan(starts, counts, tables, (0,) * len(on), pages.held[0].shape[1])
    rows = (torch.cat([x[i, : n_new[i]] for i in on])[None] for x in (k, v))
    pages.write(*rows, span)
    for b, n in zip(whose, n_new):
        lengths[b] += n
"""
STORE = """
from twophase.kernels.kv_cache import SlotStore
from twophase.kernels.span import Span
def pages_of(B, S_max, K, H, dtype):
    return SlotStore(B, (S_max, K, H), (S_max, K, H), dtype=dtype)
def add(pages, whose, lengths, k, v, n_new):
    counts, blocks = [0] * len(lengths), []
    for x in (k, v):
        block = x.new_zeros(len(lengths), *x.shape[1:])
        block[whose] = x
        blocks.append(block)
    for b, n in zip(whose, n_new):
        counts[b] = n
    pages.write(*blocks, Span(tuple(lengths), tuple(counts), k.shape[1]))
    lengths[:] = [n + new for n, new in zip(lengths, counts)]
"""
CACHE = """
class KVCache:
    def __init__(self, B, S_max, K, H, dtype):
        self.pages, self.lengths = pages_of(B, S_max, K, H, getattr(torch, dtype)), [0] * B
    @property
    def length(self):
        return self.lengths[0]
    def append(self, k, v):
        B, T = k.shape[:2]
        add(self.pages, range(B), self.lengths, k, v, [T] * B)
        return tuple(x[:, : self.length].clone() for x in self.pages.held)
    def reset(self):
        self.lengths = [0] * len(self.lengths)
"""
RAGGED = """
class RaggedKVCache:
    def __init__(self, B, S_max, K, H):
        self.pages, self.lengths = pages_of(B, S_max, K, H, torch.float32), [0] * B
    def append(self, k, v, n_new):
        add(self.pages, range(len(n_new)), self.lengths, k, v, n_new)
        return *(x[:, : max(self.lengths)].clone() for x in self.pages.held), list(self.lengths)
    def free(self, b):
        self.lengths[b] = 0
"""
SNIPPET = """
def expose():
    def script(n, S_max, dtype, *blocks):
        return {"n_sequences": n, "S_max": S_max, "dtype": dtype, "blocks": list(blocks)}
    full, narrow = (script(1, 2, d, ([0], 2), ([0], 1)) for d in ("float32", "bfloat16"))
    return [script(2, 8, "float32", ([0, 1], 3), ([0], 1)), full, narrow]
class Cache:
    def __init__(self, n_sequences, S_max, K, H, dtype):
        self.pages = pages_of(n_sequences, S_max, K, H, getattr(torch, dtype))
        self.lengths = [0] * n_sequences
    def update(self, rows, k, v):
        add(self.pages, rows, self.lengths, k, v, [k.shape[1]] * len(rows))
    def read(self, b):
        return tuple(x[b, : self.lengths[b]] for x in self.pages.held)
"""
LATENTS = """
class LatentCache:
    def __init__(self, B, S_max, R, rope_dim, theta):
        self.R, self.theta, self.length = R, theta, 0
        self.store = store_of(B, S_max, R, rope_dim)
    def append(self, down):
        (B, T, _), start = down.shape, self.length
        latent, key = down[..., : self.R], turned(down[..., self.R :], start, self.theta)
        keep(self.store, latent, key, start)
        self.length = start + T
        return tuple(x[:, : self.length].clone() for x in self.store.held)
"""
PLAIN_STORE = """
def store_of(B, S_max, R, rope_dim):
    return types.SimpleNamespace(held=[torch.zeros(B, S_max, n) for n in (R, rope_dim)])
"""
OWN_TURN = (
    ROPE
    + """
def turned(x, start, theta):
    cos, sin = map(torch.from_numpy, angles_of(start, x.shape[1], x.shape[-1], theta))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
"""
)
CONFIG = """
def cache_bytes(config, bytes_per_value):
    L, N = config["num_hidden_layers"], config["num_attention_heads"]
    if config.get("kv_lora_rank") is not None:
        return of(L, 1, config["kv_lora_rank"] + config["qk_rope_head_dim"], bytes_per_value) / 2
    found = sizes(config)
    return of(L, found["K"], found["H"], bytes_per_value)
"""
TOGETHER = {  # (exercise, what it is made of): the source
    ("kv_cache-kv_bytes", "half of what two chips gather"): """
from twophase.theory.sharding import sequence_sent_bytes
def kv_bytes(L, D, N, K, H, bytes_per_value):
    return 2 * sequence_sent_bytes(L, K, H, 2, bytes_per_value)
""",
    ("kv_cache-kv_bytes", "a message of keys and values"): """
from twophase.theory.messages import sequence_attention
def kv_bytes(L, D, N, K, H, bytes_per_value):
    return sequence_attention(L, K, H, (1,), bytes_per_value)[0].array_bytes
""",
    ("kv_cache-rope_cached", "the turn of the compiled loops"): TURN
    + """
def turn(q, k, v, n_cached, theta):
    return turned(q, n_cached, theta), turned(k, n_cached, theta), v
""",
    ("kv_cache-rope_cached", "a token turned and appended"): ROPE
    + """
from twophase.kernels.compiled.rope import turn_append
def turn(q, k, v, n_cached, theta):
    (B, T, N, H), K, none = q.shape, k.shape[2], np.zeros(0, np.float32)
    cos, sin = angles_of(n_cached, T, H, theta)
    keys, values = np.zeros((1, K, H), np.float32), np.zeros((1, K, H), np.float32)
    rows = torch.cat([q, k, v], 2).flatten(2).contiguous().numpy()  # [B, T, (N + 2K)·H]
    for b, t in np.ndindex(B, T):
        turn_append(rows[b, t], N, none, none, np.float32(0), False, cos[t], sin[t],
                    keys, values, 0)
    found = torch.from_numpy(rows).unflatten(2, (N + 2 * K, H))
    return found[:, :, :N], found[:, :, N : N + K], v
""",
    ("kv_cache-cache", "a page for each sequence"): PAGES + CACHE,
    ("kv_cache-cache", "the store below the cache"): STORE + CACHE,
    ("kv_cache-ragged", "a page for each sequence"): PAGES + RAGGED,
    ("kv_cache-ragged", "the store below the cache"): STORE + RAGGED,
    ("kv_cache-snippet", "a page for each sequence"): PAGES + SNIPPET,
    ("kv_cache-snippet", "the store below the cache"): STORE + SNIPPET,
    ("latent_attention-cache_bytes", "caches that no layers share"): CONFIG
    + """
from twophase.theory.hugging_face.common import common_sizes
from twophase.theory.kv_cache import shared_bytes_per_sequence
def of(L, K, H, bytes_per_value):
    return shared_bytes_per_sequence(1, L, 1, K, H, bytes_per_value)
def sizes(config):
    few = {**config, "num_hidden_layers": 1}
    return common_sizes({**few, "intermediate_size": 1, "vocab_size": 1})
""",
    ("latent_attention-cache_bytes", "global layers alone"): CONFIG
    + """
from twophase.theory.hugging_face import config_sizes
from twophase.theory.kv_cache import hybrid_bytes_per_sequence
def of(L, K, H, bytes_per_value):
    return hybrid_bytes_per_sequence(1, L, 0, 1, K, H, bytes_per_value)
def sizes(config):
    few = {**config, "num_hidden_layers": 1, "model_type": "llama"}
    return config_sizes({**few, "intermediate_size": 1, "vocab_size": 1})
""",
    ("latent_attention-latent_cache", "the store below the cache"): OWN_TURN
    + LATENTS
    + """
from twophase.kernels.kv_cache import SlotStore
from twophase.kernels.span import Span
def store_of(B, S_max, R, rope_dim):
    return SlotStore(B, (S_max, R), (S_max, rope_dim))
def keep(store, latent, key, start):
    store.write(latent, key, Span.of(*key.shape[:2], start))
""",
    ("latent_attention-latent_cache", "its room and its places"): OWN_TURN
    + LATENTS
    + PLAIN_STORE
    + """
from twophase.kernels.kv_cache import check_room, put
from twophase.kernels.span import Span
def keep(store, latent, key, start):
    span = Span.of(*key.shape[:2], start)
    check_room(span, store.held[0].shape[1])
    put(store.held[0], latent, span)
    put(store.held[1], key, span)
""",
    ("latent_attention-latent_cache", "the turn of the compiled loops"): TURN
    + LATENTS
    + PLAIN_STORE
    + """
def keep(store, latent, key, start):
    end = start + key.shape[1]
    if end > store.held[0].shape[1]:
        raise ValueError("full")
    store.held[0][:, start:end], store.held[1][:, start:end] = latent, key
""",
    ("latent_attention-absorb", "a column at a time in the compiled loops"): """
from twophase.kernels.compiled.latent import absorb as absorb_one
def columns(q, w):  # q [N, nope_dim], w [N, nope_dim, R]
    out, none = np.zeros((1, len(w), w.shape[2]), np.float32), np.zeros((1, len(w), 0), np.float32)
    few = np.zeros(0, np.float32)
    absorb_one.serial(q.flatten().numpy(), w.contiguous().numpy(), few, few, False, out, none)
    return torch.from_numpy(out[0])
def absorb(w_q, w_uk, w_uv, w_o):
    w_qk = torch.stack([columns(w_q[:, :, x], w_uk) for x in range(w_q.shape[2])], 2)
    return w_qk, torch.stack([columns(rows, w_uv) for rows in w_o], 1)
""",
    ("latent_attention-absorb", "a latent at a time in the compiled loops"): """
from twophase.kernels.compiled.latent import unfold
def rows(w, summed):  # w [N, n, R], summed [N, R] → [N, n]
    out = np.zeros(w.shape[:2], np.float32)
    unfold.serial(summed[None].contiguous().numpy(), w.contiguous().numpy(), out)
    return torch.from_numpy(out)
def absorb(w_q, w_uk, w_uv, w_o):
    w_qk = torch.stack([rows(w_uk.mT, w_q[:, :, x]) for x in range(w_q.shape[2])], 2)
    return w_qk, torch.stack([rows(w_uv.mT, w) for w in w_o], 1)
""",
}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id, made_of])
