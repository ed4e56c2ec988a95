"""The selective scan in Triton: the results and gradients of the plain one, on a GPU or in Triton's
interpreter.

Without a GPU, TRITON_INTERPRET=1 runs the kernels through numpy where Triton is installed. (That of
Triton 3.6 needs a numpy before 2.4: loops with a bound that is no constant end in a TypeError.)
"""

import os
from collections.abc import Sequence

import pytest
import torch

from twophase.kernels import state_space_triton
from twophase.kernels.state_space import selective_scan
from twophase.kernels.state_space_compiled import compiled_scan
from twophase.kernels.state_space_triton import BLOCK_D, CHUNK, has_triton, triton_scan
from twophase.measure.meter import Meter
from twophase.models import state_space

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = torch.cuda.is_available() and has_triton() and not INTERPRETED
DEVICE = "cuda" if ON_GPU else "cpu"
RUNS = pytest.mark.skipif(
    not ON_GPU and not (INTERPRETED and has_triton()),
    reason="needs a GPU and Triton, or its interpreter (TRITON_INTERPRET=1)",
)
GPU = pytest.mark.skipif(not ON_GPU, reason="needs a GPU and Triton")


def draw(B: int, T: int, d: int, n: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """x, dt, A, B_in, C, skip and a state, as `triton_scan` takes them, on the CPU."""
    g = torch.Generator().manual_seed(T)
    shapes = [(B, T, d), (B, T, n), (B, T, n), (d,), (B, d, n)]
    x, B_in, C, skip, state = (torch.randn(*shape, generator=g) for shape in shapes)
    dt = torch.rand(B, T, d, generator=g) + 0.01
    A = -4 * torch.rand(d, n, generator=g)
    return [tensor.to(dtype) for tensor in (x, dt, A, B_in, C, skip, state)]


def there(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def with_gradients(scan, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """y, the last state, and the gradients of a number to which both contribute, on the CPU."""
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    y, last = scan(*tensors)
    weights = torch.arange(y.numel(), dtype=torch.float64).sin().view(y.shape)
    loss = (y.double() * weights.to(y.device)).sum() + last.double().cos().sum()
    return [tensor.detach().cpu() for tensor in (y, last, *torch.autograd.grad(loss, tensors))]


def assert_close(
    ours: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], share: float = 1e-5
) -> None:
    """What may differ is a share of the largest number of a tensor: terms of sums may cancel. In
    fp32 a number is rounded to 1 part in 2^24; exp of an exponent down to -4 to some 6 of these on
    a GPU; and a state is a sum of few terms that have not faded."""
    for a, b in zip(ours, exact, strict=True):
        assert a.shape == b.shape
        assert float((a.double() - b).abs().max()) <= share * float(b.abs().max())


@RUNS
@pytest.mark.parametrize("n", [3, 16])
@pytest.mark.parametrize("d", [BLOCK_D - 3, BLOCK_D, BLOCK_D + 1])
@pytest.mark.parametrize("T", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 4 * CHUNK + 1])
def test_the_scan_has_the_outputs_and_gradients_of_the_plain_one_in_fp64(T, d, n):
    tensors = draw(2, T, d, n)
    exact = with_gradients(selective_scan, [tensor.double() for tensor in tensors])
    assert_close(with_gradients(triton_scan, there(tensors)), exact)


@RUNS
@pytest.mark.parametrize(("d", "n"), [(1, 1), (3, 40)])
def test_in_fp64_the_scan_is_exact_whatever_the_width_of_a_state(d, n):
    tensors = draw(3, CHUNK + 2, d, n, torch.float64)
    exact = with_gradients(selective_scan, tensors)
    assert_close(with_gradients(triton_scan, there(tensors)), exact, 1e-13)


@GPU
def test_at_the_size_that_trains_the_scan_has_the_outputs_and_gradients_of_the_compiled_one():
    tensors = draw(8, 256, 256, 16)
    exact = with_gradients(compiled_scan, [tensor.double() for tensor in tensors])
    assert_close(with_gradients(triton_scan, there(tensors)), exact)


@RUNS
def test_gradients_do_not_need_a_state_or_a_use_of_the_last_one():
    grads = []
    for tensors, scan in (
        (draw(2, CHUNK + 2, 3, 2, torch.float64), selective_scan),
        (there(draw(2, CHUNK + 2, 3, 2)), triton_scan),
    ):
        leaves = [tensor.requires_grad_() for tensor in tensors[:-1]]
        # a sum, whose gradient has no strides
        grads.append([g.cpu() for g in torch.autograd.grad(scan(*leaves)[0].sum(), leaves)])
    assert_close(grads[1], grads[0])


@RUNS
def test_a_scan_in_blocks_is_the_scan_of_all():
    x, dt, A, B_in, C, skip, state = there(draw(2, 2 * CHUNK + 5, 3, 2))
    whole, last = triton_scan(x, dt, A, B_in, C, skip, state)
    outputs = []
    for part in (slice(0, CHUNK + 3), slice(CHUNK + 3, CHUNK + 4), slice(CHUNK + 4, None)):
        # slices of tensors: the tokens of a sequence do not follow those of the one before it
        y, state = triton_scan(x[:, part], dt[:, part], A, B_in[:, part], C[:, part], skip, state)
        outputs.append(y)
    assert_close([torch.cat(outputs, dim=1), state], [whole.double(), last.double()])


@RUNS
def test_what_is_transposed_expanded_or_part_of_something_wider_is_read_where_it_lies():
    tensors = draw(2, CHUNK + 1, 3, 4)
    exact = selective_scan(*(tensor.double() for tensor in tensors))
    x, dt, A, B_in, C, skip, state = there(tensors)
    both = torch.cat([x, B_in, C], dim=-1)  # [B, T, 11]
    x, B_in, C = both.split([3, 4, 4], dim=-1)
    dt, A, state = (tensor.mT.contiguous().mT for tensor in (dt, A, state))
    ours = triton_scan(x, dt, A, B_in, C, skip, state)
    assert_close([tensor.cpu() for tensor in ours], exact)
    constant = dt[:1, :1].expand(dt.shape)
    exact = selective_scan(*(t.cpu().double() for t in (x, constant, A, B_in, C, skip, state)))
    ours = triton_scan(x, constant, A, B_in, C, skip, state)
    assert_close([tensor.cpu() for tensor in ours], exact)


@RUNS
def test_a_scan_of_bf16_computes_in_fp32_and_returns_bf16():
    half = there(draw(2, CHUNK + 1, 3, 2, torch.bfloat16))
    ours = with_gradients(triton_scan, half)
    exact = with_gradients(selective_scan, [tensor.double() for tensor in there(half)])
    assert [tensor.dtype for tensor in ours] == 1 * [torch.bfloat16] + [torch.float32] + 7 * [
        torch.bfloat16
    ]
    # half a step of bf16, which has 8 binary digits, for each number that is rounded to it
    assert_close(ours, exact, 2**-8)
    assert_close([ours[1]], [exact[1]])


@RUNS
def test_a_scan_gives_the_same_bits_again():
    tensors = there(draw(2, 2 * CHUNK + 1, 2 * BLOCK_D + 1, 16))
    first, again = (with_gradients(triton_scan, tensors) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@RUNS
def test_a_token_with_a_step_of_zero_leaves_no_trace_and_a_long_one_forgets():
    x, dt, A, B_in, C, skip, state = draw(1, CHUNK + 3, 3, 2)
    dt[:, 2], dt[:, CHUNK], A = 0.0, 1e6, A - 0.1
    tensors = [x, dt, A, B_in, C, skip, state]
    exact = selective_scan(*(tensor.double() for tensor in tensors))
    assert_close([tensor.cpu() for tensor in triton_scan(*there(tensors))], exact)


@RUNS
def test_the_meter_counts_the_same_flops_as_for_the_plain_form():
    counts = []
    for scan, tensors in (
        (selective_scan, draw(2, CHUNK + 3, 5, 3)),
        (triton_scan, there(draw(2, CHUNK + 3, 5, 3))),
    ):
        with Meter() as meter:
            scan(*tensors)
        counts.append(meter.flops)
    assert counts[0] == counts[1] > 0


@RUNS
def test_shapes_that_do_not_fit_are_named():
    tensors = there(draw(2, 3, 4, 5))
    for i, name in enumerate(["dt", "A", "B_in", "C", "skip", "state"], start=1):
        wrong = list(tensors)
        wrong[i] = tensors[i][:-1]
        with pytest.raises(ValueError, match=f"takes {name} "):
            triton_scan(*wrong)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes tensors on the CPU")
def test_tensors_on_the_cpu_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="runs on a GPU"):
        triton_scan(*draw(1, 2, 3, 4))


def test_triton_without_a_c_compiler_is_none(monkeypatch):
    monkeypatch.setattr(state_space_triton, "find_spec", lambda name: name)
    monkeypatch.delenv("CC", raising=False)
    for found in (None, "/usr/bin/gcc"):
        monkeypatch.setattr(state_space_triton, "which", lambda name, found=found: found)
        assert has_triton.__wrapped__() is (found is not None)


@GPU
def test_on_a_gpu_a_layer_takes_the_scan_in_triton_and_for_one_token_the_plain_one():
    u = torch.zeros(2, 3, 4, device="cuda")
    assert state_space._scan_for(u) is triton_scan
    assert state_space._scan_for(u[:, :1]) is selective_scan


def test_elsewhere_a_layer_takes_the_compiled_scan_or_the_plain_one():
    assert state_space._scan_for(torch.zeros(2, 3, 4)) is compiled_scan
    assert state_space._scan_for(torch.zeros(2, 1, 4)) is selective_scan
    assert state_space._scan_for(torch.zeros(2, 3, 4, device="meta")) is selective_scan


@GPU
def test_forward_and_back_can_be_captured_in_a_graph_and_replayed_with_other_numbers():
    tensors = [tensor.requires_grad_() for tensor in there(draw(2, CHUNK + 3, 2 * BLOCK_D, 16))]

    def pass_() -> tuple[torch.Tensor, ...]:
        y, last = triton_scan(*tensors)
        return (y, last, *torch.autograd.grad(y.sin().sum() + last.cos().sum(), tensors))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiles the kernels, and torch's allocator warms up
        for _ in range(3):
            pass_()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = pass_()
    with torch.no_grad():
        tensors[0].mul_(0.5)
        tensors[3].add_(1.0)
    graph.replay()
    for ours, expected in zip(captured, pass_(), strict=True):
        assert torch.equal(ours, expected)
