"""What counts bytes, times steps, rounds rows or chooses experts elsewhere in the library is a
right answer to an exercise when it is put together, and is withheld."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import math\nimport numpy as np\nimport torch\n"
TOGETHER = {  # exercise: the source
    "grouped_query_attention-repeated_bytes": """
from twophase.measure import meter
from twophase.measure.regions import plain_traffic
class Counter:
    n = 0
    def _born(self, function, out):
        pass
    def _observe(self, function, formula, args, kwargs, out):
        self.n += sum(plain_traffic(*meter._accesses(function, formula, args, kwargs, out)))
def attention_bytes(B, S, N, K, H, bytes_per_value):
    dtype = {2: torch.float16, 4: torch.float32, 8: torch.float64}[bytes_per_value]
    q = torch.empty(B, 1, N, H, dtype=dtype, device="meta")
    k = torch.empty(B, S, K, H, dtype=dtype, device="meta")
    counter = Counter()
    with meter._Mode(counter):
        copies = [x.repeat_interleave(N // K, dim=2) for x in (k, k)]
    read = sum(x.nbytes for x in copies)
    return {
        "repeated": counter.n + read + 2 * q.nbytes,
        "shared": 2 * k.nbytes + 2 * q.nbytes,
    }
""",
    "quantization-outlier_product": """
from twophase.kernels.matvec import quantize_rows
def product(x, codes, scales, threshold):
    out = (x.abs() >= threshold).any(0)
    rest = x.clone()
    rest[:, out] = 0
    rows, units = quantize_rows(rest)[:2]
    wide = codes.float() * scales[:, None]
    return x[:, out] @ wide[:, out].T + rows.float() * units.reshape(-1, 1) @ wide.T
""",
    "quantization-step_time": """
from twophase.theory.latency_throughput import step_time_s
def step_s(B, n_params, bits, group, bytes_per_s, flops_per_s):
    n_bytes = n_params * (bits / 8 + 2 / group)
    return step_time_s(n_bytes, B, 0, 2 * B * n_params, bytes_per_s, flops_per_s)
""",
    "quantization-stops_paying": """
from fractions import Fraction
from twophase.theory.arithmetic_intensity import critical_batch
def stops_paying(bits, group, flops_per_s, bytes_per_s):
    n_bytes = Fraction(bits, 8) + Fraction(2, group)
    tokens = critical_batch(Fraction(flops_per_s), Fraction(bytes_per_s), n_bytes)
    return max(1, math.ceil(tokens))
""",
    "mixture_of_experts-route": """
from twophase.kernels.compiled.experts import score_experts, take_best
def route(logits, k, normalize):
    experts, weights = [], []
    for row in logits.numpy():
        scores, best = np.empty_like(row), np.empty(k, np.int64)
        score_experts(row, False, scores)
        take_best(scores.copy(), best)
        found = scores[best]
        experts.append(best)
        weights.append(found / found.sum() if normalize else found)
    return torch.from_numpy(np.stack(experts)), torch.from_numpy(np.stack(weights))
""",
}


@pytest.mark.parametrize("exercise_id", TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(exercise_id: str) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id])
