"""Parts of the library that make an answer to an exercise of sharding or of experts, put together,
are no answer where the official grader asks."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import math\nimport types\nimport numpy as np\nimport torch\n"
MLP = """
def mlp_rank(x, w_gate, w_up, w_down, bias, rank, n, all_reduce):
    own = torch.arange(w_gate.shape[1]).chunk(n)[rank]
    cut = (w.contiguous() for w in (w_gate[:, own].T, w_up[:, own].T, w_down[own].T))
    return all_reduce(part(x, *cut)) + bias
def one_expert(run, x, *matrices):
    nobody, once = torch.zeros(len(x), 1, dtype=torch.int64), torch.ones(len(x), 1)
    return run(x, nobody, once, *(w[None] for w in matrices))
"""
HEADS = """
def attention_rank(q, k, v, w_o, rank, n, all_reduce):
    (T, N, H), (S, K, _) = q.shape, k.shape
    part = torch.zeros(T, w_o.shape[1])
    for h in range(rank * N // n, (rank + 1) * N // n):
        kv, ends = h // (N // K), range(S - T + 1, S + 1)
        out = torch.stack([one(q[t, h], k[:end, kv], v[:end, kv]) for t, end in enumerate(ends)])
        part = part + out @ w_o[h * H : (h + 1) * H]
    return all_reduce(part)
"""
TOGETHER = {  # (exercise, what it is made of): the source
    ("sharding-mlp", "a bin of one expert"): MLP
    + """
from twophase.kernels.expert_capacity import run_in_bins
def part(x, *cut):
    return one_expert(lambda *given: run_in_bins(*given, len(x)), x, *cut)
""",
    ("sharding-mlp", "one expert in a group"): MLP
    + """
from twophase.kernels.grouped_experts import run_grouped
def part(x, *cut):
    return one_expert(run_grouped, x, *cut)
""",
    ("sharding-mlp", "the loop of grouped experts, in Python"): MLP
    + """
from twophase.kernels import grouped_experts
def part(x, gate, up, down):
    x, y, between = x.contiguous(), torch.empty(len(x), len(down)), torch.empty(len(x), len(gate))
    cut = (w[None].numpy() for w in (gate, up, down))
    starts = np.array([0, len(x)])
    loop = grouped_experts._grouped_mlp.py_func
    loop(x.numpy(), np.array([0]), starts, *cut, between.numpy(), y.numpy())
    return y
""",
    ("sharding-mlp", "the loop of one token's experts, in Python"): MLP
    + """
from twophase.kernels.compiled import experts, linear
def first(logits, how, scores, chosen, weights):
    chosen[:], weights[:] = 0, 1
names = {
    **vars(experts),
    "route": first,
    "dot_of": lambda w, e, row, x, j: w[e, row] @ x[j],
    "activate": linear.activate.py_func,
    "share": linear.share.py_func,
}
loop = types.FunctionType(experts.visit_experts.serial.py_func.__code__, names)
def part(x, *cut):
    y, none = np.zeros((len(x), len(cut[2])), np.float32), np.zeros(1, np.float32)
    between = np.zeros((1, len(cut[0])), np.float32)
    cut = [w[None].numpy() for w in cut]
    for row, into in zip(x.contiguous().numpy(), y):
        loop(none, None, row[None], *cut, 0, between, into, 1)
    return torch.from_numpy(y)
""",
    ("sharding-mlp", "cut both ways, over one rank"): MLP
    + """
from twophase.kernels.sharding import stationary_mlp
class Alone:
    rank, size = 0, 1
    def all_gather(self, x, dim):
        return x
    reduce_scatter = all_gather
def part(x, *cut):
    return stationary_mlp(Alone(), Alone(), x, *cut)
""",
    ("sharding-mlp", "a layer of a model"): MLP
    + """
from twophase.models.config import Config
from twophase.models.mlp import GatedMLP
def part(x, gate, up, down):
    layer = GatedMLP(Config(L=1, D=x.shape[1], F=len(gate), N=1, K=1, H=2))
    layer.gate_proj.weight.data, layer.up_proj.weight.data = gate, up
    layer.down_proj.weight.data = down
    with torch.no_grad():
        return layer(x)
""",
    ("sharding-heads", "unmasked attention"): HEADS
    + """
from twophase.kernels.attention import full_attention
def one(q, k, v):
    return full_attention(q[None, None, None], k[None, :, None], v[None, :, None])[0, 0, 0]
""",
    ("sharding-heads", "a decode step by head"): HEADS
    + """
from twophase.kernels.grouped_query_attention import decode_by_head
def one(q, k, v):
    return decode_by_head(q[None], k[:, None], v[:, None])[0]
""",
    ("sharding-heads", "the training kernel"): HEADS
    + """
from twophase.kernels.attention_training import attention_with_gradient
def one(q, k, v):
    q = q.expand(len(k), -1)[None, :, None].clone().requires_grad_()
    scale = q.shape[-1] ** -0.5
    out = attention_with_gradient(q, k[None, :, None], v[None, :, None], scale=scale, window=None)
    return out[0, -1, 0].detach()
""",
    ("sharding-length", "attention of each rank, times its sum"): """
from twophase.kernels.attention import full_attention
def decode_rank(q, k, v, all_gather):
    (N, H), K, S = q.shape, k.shape[1], len(k)
    out, m, total = torch.zeros(N, H), torch.full((N,), -math.inf), torch.zeros(N)
    if S:
        scores = torch.einsum("nh,snh->ns", q, k.repeat_interleave(N // K, 1)) / math.sqrt(H)
        m = scores.amax(1)
        total = (scores - m[:, None]).exp().sum(1)
        out = full_attention(q[None, None], k[None], v[None])[0, 0] * total[:, None]
    brought = torch.stack(all_gather(torch.cat([out, m[:, None], total[:, None]], 1)))
    scale = (brought[..., H] - brought[..., H].amax(0)).exp()
    summed = (scale[..., None] * brought[..., :H]).sum(0)
    return summed / (scale * brought[..., H + 1]).sum(0)[:, None]
""",
    ("mixture_of_experts-params", "a dense model with one MLP"): """
from twophase.theory.params import transformer_params
def moe_params(L, D, F, N, K, H, V, E, k, n_shared):
    def dense(n):
        return transformer_params(L, D, n * F, N, K, H, V, tied=True) + L * E * D
    return {"total": dense(E + n_shared), "active": dense(k + n_shared)}
""",
    ("mixture_of_experts-params", "formulas of its parts"): """
from twophase.theory.params import attention_params, embedding_params, mlp_params
def moe_params(L, D, F, N, K, H, V, E, k, n_shared):
    def of(n):
        layer = attention_params(D, N, K, H) + n * mlp_params(D, F) + E * D
        return embedding_params(V, D) + L * layer
    return {"total": of(E + n_shared), "active": of(k + n_shared)}
""",
    ("mixture_of_experts-params", "experts without numbers"): """
from twophase.models.mixture_of_experts import Experts
def moe_params(L, D, F, N, K, H, V, E, k, n_shared):
    with torch.device("meta"):
        one = sum(p.numel() for p in Experts(1, F, D, "silu").parameters())
    rest = V * D + L * (2 * D * (N + K) * H + E * D)
    return {"total": rest + L * (E + n_shared) * one, "active": rest + L * (k + n_shared) * one}
""",
    ("mixture_of_experts-route", "the compiled router, in Python"): """
from twophase.kernels.compiled import experts as compiled
plain = {name: getattr(compiled, name).py_func for name in ("score_experts", "take_best")}
choose = types.FunctionType(compiled.route.py_func.__code__, {**vars(compiled), **plain})
def route(logits, k, normalize):
    n, E = logits.shape
    experts, weights = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    nothing = np.zeros(E, np.float32)
    how = compiled.Choice(False, bool(normalize), np.float32(1), 1, 1, 1, nothing)
    for row, *into in zip(logits.numpy(), experts, weights):
        choose(row, how, np.empty(E, np.float32), *into)
    return torch.from_numpy(experts), torch.from_numpy(weights)
""",
    ("mixture_of_experts-run", "bins with room for all"): """
from twophase.kernels.expert_capacity import combine, dispatch
def run(x, experts, weights, expert):
    n, E = len(x), int(experts.max()) + 1
    place = torch.arange(n)[:, None].expand_as(experts)
    bins = dispatch(x, experts, place, E, n)
    for e in experts.unique().tolist():
        whose = (experts == e).any(-1)
        bins[e, whose] = expert(e, bins[e, whose])
    return combine(bins, experts, place, weights)
""",
    ("mixture_of_experts-run", "an expert for each rank"): """
from twophase.kernels.expert_parallel import expert_parallel
class Ranks:
    rank, came = 0, None
    def __init__(self, n, expert):
        self.size, self.expert = n, expert
    def all_to_all(self, parts):
        if len(parts) == self.size:
            self.came = self.came or parts
            return [parts[0][:0]]
        return [self.expert(e, rows) if len(rows) else rows for e, rows in enumerate(self.came)]
def run(x, experts, weights, expert):
    ranks, w = Ranks(max(int(experts.max()) + 1, 2), expert), torch.zeros(1, 1, x.shape[1])
    return expert_parallel(ranks, x, experts, weights, w, w, w.mT)
""",
    ("mixture_of_experts-seats", "visits in the order of their experts"): """
from twophase.kernels.mixture_of_experts import by_expert
def seats(experts, E, percent):
    n, k = len(experts), len(experts[0])
    room, place = -(-n * k * percent // (E * 100)), {}
    order, counts = by_expert(torch.tensor(experts).T, E)
    for bin in torch.split(order, counts):
        place |= {visit: i for i, visit in enumerate(bin.tolist()) if i < room}
    return [[place.get(j * n + t) for j in range(k)] for t in range(n)]
""",
    ("mixture_of_experts-expert_bytes", "the sum of a drafted text's tokens"): """
from twophase.theory.speculative_decoding import expected_tokens
def expert_bytes(B, E, k, D, F, bytes_per_param):
    return k * expected_tokens(1 - k / E, B - 1) * 3 * D * F * bytes_per_param
""",
}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id, made_of])
