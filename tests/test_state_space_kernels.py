"""The selective state space: the recurrence, the compiled scan that trains, Mamba's layer, and a
state of known size."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers import DynamicCache, MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer

from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.kernels.state_space import causal_conv, selective_scan
from twophase.kernels.state_space_compiled import CHUNK, compiled_scan
from twophase.measure.meter import Meter
from twophase.models import state_space
from twophase.models.cache import Cache
from twophase.models.config import Config
from twophase.models.layer_sizes import StateSpace
from twophase.models.step import Step
from twophase.models.transformer import Transformer
from twophase.theory.kv_cache import state_space_bytes

# Sums of the same numbers in another order: a few units in the last place of float64, times at most
# a hundred terms.
EXACT = {"rtol": 1e-11, "atol": 1e-12}
# The same in fp32 (1e-7 a step) through layers whose outputs are of order 1.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}

# All sizes differ: a mixed-up pair cannot pass unseen.
SIZES = StateSpace(d_inner=14, d_state=5, conv_width=3, dt_rank=2)
STACK = Config(L=3, D=12, F=20, N=3, K=1, H=6, V=31, attention="ssm", ssm=SIZES, context=64)
HYBRID = Config(**{**STACK.to_dict(), "attention": ("ssm", "gqa", "ssm"), "ssm": SIZES})

LENGTHS = [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 1]


def draw(
    B: int, T: int, d: int, n: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """x, dt, A, B_in, C, skip and a state, as `selective_scan` takes them."""
    g = torch.Generator().manual_seed(seed)
    normal = [
        torch.randn(*shape, generator=g, dtype=dtype)
        for shape in [(B, T, d), (B, T, n), (B, T, n), (d,), (B, d, n)]
    ]
    x, B_in, C, skip, state = normal
    dt = torch.rand(B, T, d, generator=g, dtype=dtype) + 0.01
    A = -4 * torch.rand(d, n, generator=g, dtype=dtype)
    return [x, dt, A, B_in, C, skip, state]


def one_number_at_a_time(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper's recurrence in plain Python floats."""
    y, last = torch.zeros_like(x), state.clone()
    for b in range(x.shape[0]):
        for d in range(x.shape[2]):
            h = state[b, d].tolist()
            for t in range(x.shape[1]):
                step, number = float(dt[b, t, d]), float(x[b, t, d])
                h = [
                    math.exp(step * float(A[d, n])) * h[n] + step * float(B_in[b, t, n]) * number
                    for n in range(len(h))
                ]
                y[b, t, d] = (
                    sum(float(C[b, t, n]) * h[n] for n in range(len(h))) + float(skip[d]) * number
                )
            last[b, d] = torch.tensor(h, dtype=last.dtype)
    return y, last


SCANS = pytest.mark.parametrize("scan", [selective_scan, compiled_scan])


# The convolution.


@pytest.mark.parametrize("W", [1, 2, 4])
@pytest.mark.parametrize("T", [1, 3, 7])
def test_the_convolution_is_a_weighted_sum_of_the_last_inputs(T, W):
    g = torch.Generator().manual_seed(T + W)
    x, weight, bias, before = (
        torch.randn(*s, generator=g, dtype=torch.float64)
        for s in [(2, T, 3), (3, W), (3,), (2, 3, W)]
    )
    y, inputs = causal_conv(x, weight, bias, before)
    history = torch.cat([before.transpose(1, 2), x], dim=1)  # [B, W + T, 3]
    for t in range(T):
        expected = bias + sum(
            weight[:, W - 1 - back] * history[:, W + t - back] for back in range(W)
        )
        torch.testing.assert_close(y[:, t], expected, **EXACT)
    assert torch.equal(inputs, history[:, -W:].transpose(1, 2))


def test_a_convolution_without_a_past_or_a_bias_sees_zeros():
    x, weight = torch.randn(2, 5, 3), torch.randn(3, 4)
    y, _ = causal_conv(x, weight)
    z, _ = causal_conv(x, weight, torch.zeros(3), torch.zeros(2, 3, 4))
    assert torch.equal(y, z)


def test_a_convolution_in_bf16_is_rounded_once():
    g = torch.Generator().manual_seed(5)
    x, weight, bias, before = (
        torch.randn(*s, generator=g).bfloat16() for s in [(2, 9, 33), (33, 4), (33,), (2, 33, 4)]
    )
    y, inputs = causal_conv(x, weight, bias, before)
    exact, _ = causal_conv(*(t.double() for t in (x, weight, bias, before)))
    assert (y.dtype, inputs.dtype) == (torch.bfloat16, torch.bfloat16)
    # half a step of bf16, which has 8 binary digits, and what fp32 lost before
    assert ((y - exact).abs() <= (2**-8 + 1e-6) * exact.abs() + 1e-6).all()


# The scan.


@SCANS
@pytest.mark.parametrize(
    ("B", "T", "d", "n"), [(1, 1, 1, 1), (2, CHUNK + 1, 3, 2), (1, 2 * CHUNK, 2, 5)]
)
def test_a_scan_is_the_recurrence_one_number_at_a_time(scan, B, T, d, n):
    tensors = draw(B, T, d, n)
    for ours, expected in zip(scan(*tensors), one_number_at_a_time(*tensors), strict=True):
        torch.testing.assert_close(ours, expected, **EXACT)


@SCANS
def test_with_constant_steps_a_scan_is_a_convolution(scan):
    """The paper's equation 3: where nothing is selected, y is x convolved with (CB̄, CĀB̄, CĀ²B̄,
    ...)."""
    B, T, d, n = 2, 2 * CHUNK + 3, 3, 4
    x, dt, A, B_in, C, skip, _ = draw(B, T, d, n)
    dt, B_in, C = (
        dt[:1, :1].expand(B, T, d),
        B_in[:1, :1].expand(B, T, n),
        C[:1, :1].expand(B, T, n),
    )
    age = torch.arange(T, dtype=torch.float64)
    fades = torch.exp(age[:, None, None] * dt[0, 0, :, None] * A)  # [T, d, n]
    kernel = (fades * B_in[0, 0] * C[0, 0]).sum(-1) * dt[0, 0]  # [T, d]
    padded = functional.pad(x.transpose(1, 2), (T - 1, 0))  # [B, d, 2T - 1]
    expected = (
        functional.conv1d(padded, kernel.flip(0).T[:, None], groups=d).transpose(1, 2) + skip * x
    )  # [B, T, d]
    torch.testing.assert_close(scan(x, dt, A, B_in, C, skip)[0], expected, **EXACT)


@SCANS
def test_a_token_with_a_step_of_zero_leaves_no_trace(scan):
    x, dt, A, B_in, C, skip, state = draw(2, CHUNK + 3, 3, 2)
    dt[:, 4:7] = 0
    without = [torch.cat([tensor[:, :4], tensor[:, 7:]], dim=1) for tensor in (x, dt, B_in, C)]
    y, last = scan(x, dt, A, B_in, C, skip, state)
    fewer, same = scan(without[0], without[1], A, without[2], without[3], skip, state)
    torch.testing.assert_close(last, same, **EXACT)
    torch.testing.assert_close(torch.cat([y[:, :4], y[:, 7:]], dim=1), fewer, **EXACT)


@SCANS
def test_a_very_long_step_forgets_all_that_was_before(scan):
    x, dt, A, B_in, C, skip, state = draw(1, 6, 3, 2)
    dt[:, 3] = 1e6
    y, last = scan(x, dt, A - 0.1, B_in, C, skip, state)
    later = scan(x[:, 3:], dt[:, 3:], A - 0.1, B_in[:, 3:], C[:, 3:], skip)
    torch.testing.assert_close((y[:, 3:], last), later, **EXACT)


@draws(25)
@given(
    blocks=st.lists(st.integers(1, 2 * CHUNK + 1), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
def test_a_scan_in_blocks_is_the_scan_of_all_whichever_form_does_each(blocks, seed):
    x, dt, A, B_in, C, skip, state = draw(2, sum(blocks), 3, 2, seed)
    whole, last = selective_scan(x, dt, A, B_in, C, skip, state)
    ends = [sum(blocks[:i]) for i in range(len(blocks) + 1)]
    outputs = []
    for i, (start, end) in enumerate(pairwise(ends)):
        part = slice(start, end)
        scan = (selective_scan, compiled_scan)[(i + seed) % 2]
        y, state = scan(x[:, part], dt[:, part], A, B_in[:, part], C[:, part], skip, state)
        outputs.append(y)
    torch.testing.assert_close((torch.cat(outputs, dim=1), state), (whole, last), **EXACT)


@pytest.mark.parametrize(
    ("scan", "T"), [(selective_scan, 2), (compiled_scan, 1), (compiled_scan, CHUNK + 1)]
)
def test_gradients_are_those_of_finite_differences(scan, T):
    tensors = [tensor.requires_grad_() for tensor in draw(1, T, 2, 3)]
    assert torch.autograd.gradcheck(scan, tensors)


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_compiled_scan_has_the_outputs_and_gradients_of_the_plain_one(T, dtype):
    # fp32: sums of up to 25·4 terms of order 1 and gradients of order 10
    close = EXACT if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    tensors = [tensor.requires_grad_() for tensor in draw(3, T, 17, 4, seed=T, dtype=dtype)]
    results = []
    for scan in (selective_scan, compiled_scan):
        y, last = scan(*tensors)
        loss = (y * torch.arange(y.numel()).view(y.shape).sin()).sum() + (
            last * last.detach().cos()
        ).sum()
        results.append((y, last, *torch.autograd.grad(loss, tensors)))
    torch.testing.assert_close(results[1], results[0], **close)


def test_gradients_do_not_need_a_state_or_a_use_of_the_last_one():
    tensors = [tensor.requires_grad_() for tensor in draw(2, CHUNK + 2, 3, 2)[:-1]]
    grads = [
        torch.autograd.grad(scan(*tensors)[0].sin().sum(), tensors)
        for scan in (selective_scan, compiled_scan)
    ]
    torch.testing.assert_close(grads[1], grads[0], **EXACT)


@SCANS
def test_a_scan_of_bf16_computes_in_fp32_and_returns_bf16(scan):
    half = [tensor.bfloat16() for tensor in draw(2, CHUNK + 1, 3, 2)]
    y, last = scan(*half)
    expected, state = scan(*(tensor.float() for tensor in half))
    assert (y.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(last, state)
    assert torch.equal(y, expected.bfloat16())


def test_the_compiled_scan_keeps_a_state_per_chunk_for_the_gradient_and_not_one_per_token():
    B, T, d, n = 2, 8 * CHUNK, 32, 16
    sizes = []
    for scan in (selective_scan, compiled_scan):
        tensors = [tensor.requires_grad_() for tensor in draw(B, T, d, n)]
        saved: dict[int, int] = {}

        def keep(tensor: torch.Tensor, saved: dict[int, int] = saved) -> torch.Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            scan(*tensors)
        sizes.append(sum(saved.values()))
    state_bytes = B * d * n * 8
    assert sizes[0] > 2 * T * state_bytes
    assert (
        sizes[1] < T / CHUNK * state_bytes + 8 * T * B * d * 8
    )  # and a few numbers per token and channel


# The state.


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float64, 8)]
)
def test_the_state_weighs_what_the_theory_says(dtype, width):
    state = State(3, [(14, 4), (14, 5)], dtype)
    assert state.nbytes == 3 * state_space_bytes(1, 14, 5, 4, width)
    assert state.nbytes == sum(tensor.untyped_storage().nbytes() for tensor in state.now)


def test_a_state_in_bf16_cannot_fade_slowly_and_one_in_fp32_can():
    one = torch.ones(1, 1, 1)
    for dtype, forgets in [(torch.float32, True), (torch.bfloat16, False)]:
        memory = one.to(dtype)
        for _ in range(100):  # a step of 1/1000 at A = -1, each time: exp(-0.1) should be left
            _, last = selective_scan(0 * one, one / 1000, -one[0], one, one, one[0, 0], memory)
            memory = last.to(dtype)
        left = pytest.approx(math.exp(-0.1), rel=1e-4) if forgets else 1.0
        assert float(memory) == left


# Bad input.


@SCANS
def test_shapes_that_do_not_fit_are_named(scan):
    tensors = draw(2, 3, 4, 5)
    for i, name in enumerate(["dt", "A", "B_in", "C", "skip", "state"], start=1):
        wrong = list(tensors)
        wrong[i] = tensors[i][:-1]
        with pytest.raises(ValueError, match=f"takes {name} "):
            scan(*wrong)
    with pytest.raises(ValueError, match="at least one token"):
        scan(*draw(2, 0, 4, 5))


def test_other_bad_input_gets_one_sentence():
    with pytest.raises(ValueError, match="a convolution of x"):
        causal_conv(torch.ones(2, 3, 4), torch.ones(5, 2))
    with pytest.raises(ValueError, match="a convolution of x"):
        causal_conv(torch.ones(2, 3, 4), torch.ones(4, 2), None, torch.ones(2, 4, 1))
    with pytest.raises(ValueError, match="runs on the CPU only"):
        compiled_scan(*(tensor.to("meta") for tensor in draw(1, 2, 3, 4)))
    with pytest.raises(ValueError, match="needs `ssm`"):
        state_space.SelectiveStateSpace(Config(L=1, D=8, F=8, N=1, K=1, H=8), 0)


# The layer, against the one that people use.


def pair(seed: int = 0) -> tuple[MambaMixer, state_space.SelectiveStateSpace]:
    """transformers' mixer and ours with the same weights, large enough that no mistake hides in the
    tolerance."""
    torch.manual_seed(seed)
    s = SIZES
    config = MambaConfig(
        hidden_size=STACK.D,
        state_size=s.d_state,
        intermediate_size=s.d_inner,
        expand=1,
        conv_kernel=s.conv_width,
        time_step_rank=s.dt_rank,
        num_hidden_layers=STACK.L,
    )
    config.intermediate_size = s.d_inner
    theirs = MambaMixer(config, 0).eval().requires_grad_(False)
    for name, p in theirs.named_parameters():
        if name not in ("A_log", "dt_proj.bias"):
            p.normal_(std=0.5)
    ours = state_space.SelectiveStateSpace(STACK, 0).requires_grad_(False)
    ours.load_state_dict(theirs.state_dict())  # strict: the names and shapes are the same, too
    return theirs, ours


def read(layer: torch.nn.Module, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
    """What the layer makes of x [B, T, D], as the first of a model."""
    B, T, _ = x.shape
    span = Span.of(B, T) if cache is None else cache.begin(B, T)
    y = layer(x, Step(span, {}, cache))
    if cache is not None:
        cache.commit()
    return y


@pytest.mark.parametrize("T", LENGTHS)
def test_the_layer_equals_transformers_mamba_in_prefill_and_then_token_by_token(T):
    theirs, ours = pair(T)
    x = torch.randn(2, T + 5, STACK.D)
    expected = theirs(x)
    torch.testing.assert_close(read(ours, x), expected, rtol=1e-5, atol=1e-5)
    one_layer = replace(STACK, L=1)
    mine, cache = Transformer(one_layer).new_cache(2, T + 5), DynamicCache(config=theirs.config)
    for part in x.split([T, 1, 1, 1, 1, 1], dim=1):
        torch.testing.assert_close(
            read(ours, part, mine), theirs(part, cache), rtol=1e-5, atol=1e-5
        )
    inputs, memory = mine.stores[0].now
    torch.testing.assert_close(memory, cache.get_recurrent_state(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        inputs[:, :, 1:], cache.get_conv_state(0)[:, :, 1:], rtol=1e-5, atol=1e-5
    )


def assert_as_close_as_sums(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], share: float = 1e-5
) -> None:
    """A gradient is a sum whose terms may cancel, so what may differ is a share of the largest
    number of its tensor."""
    for a, b in zip(ours, theirs, strict=True):
        assert float((a - b).detach().abs().max()) <= share * float(b.detach().abs().max())


def test_the_two_scans_train_the_layer_alike(monkeypatch):
    _, layer = pair()
    layer.requires_grad_()
    x = torch.randn(2, 2 * CHUNK + 1, STACK.D)
    grads = []
    for scan in (compiled_scan, selective_scan):
        monkeypatch.setattr(state_space, "compiled_scan", scan)
        loss = read(layer, x).sin().sum()
        grads.append(torch.autograd.grad(loss, tuple(layer.parameters())))
    assert_as_close_as_sums(grads[0], grads[1])


# The layer in a model.


def lively(config: Config, seed: int = 0) -> Transformer:
    """A model with weights so large that no mistake hides in the tolerance."""
    torch.manual_seed(seed)
    model = Transformer(config)
    for name, p in model.named_parameters():
        if p.ndim > 1 and "A_log" not in name:
            torch.nn.init.normal_(p, std=0.3)
    return model.eval().requires_grad_(False)


def tokens(B: int, T: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, STACK.V, (B, T), generator=torch.Generator().manual_seed(seed))


MODELS = {"ssm": lively(STACK), "hybrid": lively(HYBRID)}
STACKS = pytest.mark.parametrize("name", list(MODELS))


@STACKS
@draws(12)
@given(blocks=st.lists(st.integers(1, 12), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_cached_logits_equal_uncached_ones_however_the_tokens_are_fed(name, blocks, seed):
    model, ids = MODELS[name], tokens(2, sum(blocks), seed)
    cache = model.new_cache(2, 60)
    cached = torch.cat([model(block, cache) for block in ids.split(blocks, dim=1)], dim=1)
    torch.testing.assert_close(cached, model(ids), **TOLERANCE)
    assert cache.length == sum(blocks)


def test_the_cache_of_a_stack_weighs_what_the_theory_says_before_and_after_tokens():
    model = MODELS["ssm"]
    cache = model.new_cache(4, 1000)
    for _ in range(2):
        assert cache.nbytes == 4 * state_space_bytes(
            STACK.L, SIZES.d_inner, SIZES.d_state, SIZES.conv_width, 4
        )
        model(tokens(4, 30), cache)


def test_a_decode_step_does_and_reads_the_same_after_any_context():
    model, costs = MODELS["ssm"], []
    for S in (1, 7, 60):
        cache = model.new_cache(2, 100)
        model(tokens(2, S), cache)
        with Meter() as step:
            model(tokens(2, 1), cache)
        costs.append((step.calls, step.flops, step.bytes_read, step.bytes_written))
    assert costs[0] == costs[1] == costs[2]
    assert costs[0][1] > 0


def test_a_token_never_sees_a_later_one():
    a = tokens(1, 2 * CHUNK)
    b = a.clone()
    b[0, 11:] = (b[0, 11:] + 1) % STACK.V
    x, y = MODELS["ssm"](a), MODELS["ssm"](b)
    assert torch.equal(x[:, :11], y[:, :11])
    assert not torch.allclose(x[:, 11:], y[:, 11:])


@pytest.mark.parametrize(
    "sizes", [SIZES, StateSpace(d_inner=5120, d_state=16, conv_width=4, dt_rank=160)]
)
def test_parameters_are_as_many_as_the_theory_counts_and_as_transformers_has(sizes):
    config = Config(L=1, D=sizes.d_inner // 2, F=20, N=1, K=1, H=8, attention="ssm", ssm=sizes)
    with torch.device("meta"):
        model = Transformer(config)
        their_config = MambaConfig(
            hidden_size=config.D,
            state_size=sizes.d_state,
            conv_kernel=sizes.conv_width,
            time_step_rank=sizes.dt_rank,
            num_hidden_layers=1,
        )
        theirs = MambaMixer(their_config, 0)
    assert model.n_params == config.architecture().n_params()
    shapes = {name: p.shape for name, p in model.layers[0].self_attn.named_parameters()}
    assert shapes == {name: p.shape for name, p in theirs.named_parameters()}


def test_a_new_model_starts_as_mamba_does():
    """Also after `Transformer` has gone over all its linear layers, whose biases it sets to
    zero."""
    torch.manual_seed(0)
    config = Config(
        **{**STACK.to_dict(), "ssm": StateSpace(d_inner=4000, d_state=5, conv_width=3, dt_rank=4)}
    )
    mixer = Transformer(config).layers[1].self_attn
    steps = (
        functional.softplus(mixer.dt_proj.bias.detach().double()).log10().sort().values
    )  # [4000], from -3 to -1
    assert float(steps[0]) >= -3 - 1e-5
    assert float(steps[-1]) <= -1 + 1e-5
    uniform = -3 + 2 * torch.arange(0.5, 4000) / 4000
    assert (
        float((steps - uniform).abs().max()) < 0.05
    )  # Kolmogorov: 1.6/sqrt(4000) of the range of 2, at the 1% level
    assert torch.allclose(mixer.A_log.detach().exp(), torch.arange(1.0, 6).expand(4000, 5))
    assert torch.equal(mixer.D.detach(), torch.ones(4000))
    assert 0.45 < float(mixer.dt_proj.weight.detach().abs().max()) <= 4**-0.5
    for layer, inputs in [(mixer.in_proj, 12), (mixer.x_proj, 4000), (mixer.conv1d, 3)]:
        assert 0.95 * inputs**-0.5 < float(layer.weight.detach().abs().max()) <= inputs**-0.5
    assert float(mixer.out_proj.weight.detach().std()) == pytest.approx(0.02 / 6**0.5, rel=0.05)
    assert [
        name for name, p in mixer.named_parameters() if getattr(p, "_no_weight_decay", False)
    ] == ["A_log"]


def test_bf16_autocast_keeps_the_steps_and_the_scan_in_fp32():
    torch.manual_seed(0)
    model, ids = Transformer(STACK), tokens(2, 2 * CHUNK)
    losses = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(ids)
        losses.append(functional.cross_entropy(logits.float().flatten(0, 1), ids.flatten()))
    losses[1].backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-2)  # bf16 has 8 bits
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    _, layer = pair()
    seen = []
    original = state_space.compiled_scan
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(
            state_space,
            "compiled_scan",
            lambda *args: (seen.append(args[1].dtype), original(*args))[1],
        )
        read(layer, torch.randn(1, 4, STACK.D))
    assert seen == [torch.float32]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_layer_has_the_outputs_and_gradients_that_it_has_on_the_cpu():
    _, layer = pair()
    layer.requires_grad_()
    x = torch.randn(2, 2 * CHUNK + 1, STACK.D)
    results = []
    for device in ("cpu", "cuda"):
        y = read(layer.to(device), x.to(device))
        grads = torch.autograd.grad(y.sin().sum(), tuple(layer.parameters()))
        results.append([tensor.cpu() for tensor in (y, *grads)])
    # an H100 took the products of the layer in other orders, and missed 1e-5
    assert_as_close_as_sums(results[1], results[0], share=1e-4)


def test_the_meter_counts_the_same_flops_for_both_forms_of_the_scan():
    generator = torch.Generator().manual_seed(0)
    B, T, d, n = 2, 2 * CHUNK + 3, 5, 3
    x, dt = (torch.rand(B, T, d, generator=generator) for _ in range(2))
    B_in, C = (torch.rand(B, T, n, generator=generator) for _ in range(2))
    A, skip = -torch.rand(d, n, generator=generator), torch.rand(d, generator=generator)
    counts = []
    for scan in (selective_scan, compiled_scan):
        with Meter() as meter:
            scan(x, dt, A, B_in, C, skip)
        counts.append(meter.flops)
    assert counts[0] == counts[1] > 5 * B * T * d * n
