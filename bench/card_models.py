"""The parts of `card.py` that run whole models, our own `Transformer` with its own cache: decode
steps, prefills, and what it costs to launch a step's kernels.

Ways: "eager", as Python calls them; "captured", the same kernels in a CUDA graph; "fused,
captured", with norms, rotations and activations each made one kernel by torch.compile. Attention
takes the kernel that the library asks for, or, in ways that end in `TORCHS`, torch's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from card_timing import Bench, Call, captured, graph_nodes, kernels, say, sentence
from torch.nn import functional

import twophase.kernels.attention
import twophase.models.attention
import twophase.models.norm
from twophase.kernels.norm import rms_norm
from twophase.kernels.rope import apply_rope
from twophase.measure.card_runs import TORCHS, Fact, Run
from twophase.models import checkpoints
from twophase.models.blank import WithoutInitialization
from twophase.models.cache import Cache
from twophase.models.config import Config
from twophase.models.mlp import GatedMLP
from twophase.models.transformer import Transformer
from twophase.theory.architecture import Architecture
from twophase.theory.catalog import model
from twophase.theory.kv_cache import max_batch

KEPT_FREE = 2**30  # for activations and libraries, beside weights and caches
WAYS = EAGER, CAPTURED, FUSED = "eager", "captured", "fused, captured"


def step(bench: Bench) -> None:
    """Decode steps of Llama-2-13B over 1,024 tokens, with its 40 KV heads and with 8."""
    arch = _sized(bench, "llama-2-13b")
    S = 16 if bench.small else 1024
    fewer = arch.with_kv_heads(2 if bench.small else 8)
    for each, batches in ((arch, (1, 4, 16, 32, 56, 64)), (fewer, (1, 16, 64, 128, 200, 256))):
        _steps_of(bench, each, S, batches[:2] if bench.small else batches)
        bench.free()


def prefill(bench: Bench) -> None:
    """Prompts of Llama-3-8B, and its decode steps over ever longer contexts."""
    arch = _sized(bench, "llama-3-8b")
    net = _random_model(bench, arch)
    prompts = (8, 16) if bench.small else (128, 512, 1024, 2048, 4096, 8192)
    for T in prompts:
        make = partial(_prompt, bench, net, T, prompts[2 % len(prompts)] == T)
        bench.run("prefill", arch.name, EAGER, make, seconds=0.5, B=1, T=T)
    contexts = (8, 16) if bench.small else (1000, 4000, 16_000, 32_000, 64_000, 128_000)
    ways = WAYS if bench.on_card else WAYS[:1]
    ways += tuple(way + TORCHS for way in ways)
    for S in contexts:
        _steps(bench, "prefill", arch.name, net, 1, S, ways, counted=contexts[0] == S)


def launches(bench: Bench) -> None:
    """What a launch costs, and steps of models that are small enough for it to be all they cost."""
    for way in (EAGER, CAPTURED) if bench.on_card else (EAGER,):
        make = partial(_tiny, bench, way == CAPTURED)
        bench.run("launches", "one number added to", way, make, calls=1000)
    bench.run("launches", "one number added to, waited for", EAGER, partial(_waited, bench))
    for name in ("gqa", "target"):
        net = checkpoints.load(name, torch.bfloat16, bench.device)
        ways = WAYS if bench.on_card else WAYS[:1]
        _steps(bench, "launches", name, net, 1, 16 if bench.small else 256, ways, counted=True)


def attention(bench: Bench) -> None:
    """Attention alone, by each kernel of torch: one query over long caches, and prompts."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    shapes = [  # B, T, S, N, K
        (32, 1, 1024, 40, 40),
        (64, 1, 1024, 40, 8),
        (1, 1, 32_000, 32, 8),
        (1, 4096, 4096, 32, 8),
    ]
    for B, T, S, N, K in [(2, 1, 16, 4, 2), (1, 8, 8, 4, 2)] if bench.small else shapes:
        sizes = {"B": B, "T": T, "S": S, "N": N, "K": K}
        ways = {"as torch chooses": _torchs_own, "as we choose": nullcontext}
        if bench.on_card:
            kernels_of = {name: partial(sdpa_kernel, getattr(SDPBackend, name)) for name in names}
            ways |= {name.lower().replace("_", " "): kernel for name, kernel in kernels_of.items()}
        for way, inside in ways.items():
            make = partial(_attends, bench, inside, **sizes)
            bench.run("attention", "causal_attention", way, make, seconds=0.1, **sizes)


@contextmanager
def _torchs_own() -> Iterator[None]:
    """Without the kernel that `attention_on_cards` calls where heads are few."""
    ours = twophase.kernels.attention.wants_split
    twophase.kernels.attention.wants_split = lambda q, k, v: False
    try:
        yield
    finally:
        twophase.kernels.attention.wants_split = ours


def _attends(
    bench: Bench,
    inside: Callable[[], AbstractContextManager[None]],
    B: int,
    T: int,
    S: int,
    N: int,
    K: int,
) -> tuple[Call, dict[str, Fact]]:
    """Attention over random numbers, called inside of what says which kernel is taken."""

    def drawn(n: int, heads: int) -> torch.Tensor:
        shape = (B, n, heads, 128)
        return torch.empty(shape, device=bench.device, dtype=torch.bfloat16).normal_()

    q, k, v = drawn(T, N), drawn(S, K), drawn(S, K)  # [B, T, N, H], [B, S, K, H] twice

    def call() -> object:
        with inside():
            return twophase.kernels.attention.causal_attention(q, k, v)

    if not bench.on_card:
        return call, {}
    return captured(call), kernels(call)


def _sized(bench: Bench, name: str) -> Architecture:
    arch = model(name)
    if not bench.small:
        return arch
    return replace(arch, L=2, D=64, F=128, N=8, K=8 // (arch.N // arch.K), H=8, V=512)


def _random_model(bench: Bench, arch: Architecture) -> Transformer:
    """A model in bf16 with random weights that were never anywhere but on the device."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(bench.device), WithoutInitialization():
            net = Transformer(Config.from_architecture(arch)).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    for weight in net.parameters():
        if weight.ndim > 1:  # norms keep their ones
            weight.normal_(std=0.02)
    return net


def _steps_of(bench: Bench, arch: Architecture, S: int, batches: tuple[int, ...]) -> None:
    """Steps of one model at some batches, and at the largest that fits."""
    try:
        net = _random_model(bench, arch)
    except Exception as error:
        bench.write(Run("step", arch.name, EAGER, error=sentence(error)))
        return
    held, one = sum(weight.nbytes for weight in net.parameters()), arch.cache_bytes(S)
    free = torch.cuda.mem_get_info()[0] if bench.on_card else 8 * one + KEPT_FREE
    most = int(max_batch(held + free, held, one, reserved_bytes=KEPT_FREE))
    say(f"{arch.name}: {free:,} bytes free beside its weights, room for {most} caches")
    ways = WAYS if bench.on_card else WAYS[:1]
    for way in ways:  # one that cannot be captured must not spoil what runs without
        for B in batches:
            if most > B:
                _steps(bench, "step", arch.name, net, B, S, (way,), counted=B == 1)
        for B in range(most, max(0, most - 10), -2):
            if _steps(bench, "step", arch.name, net, B, S, (way,)):
                break


def _steps(
    bench: Bench,
    part: str,
    what: str,
    net: Transformer,
    B: int,
    S: int,
    ways: tuple[str, ...],
    counted: bool = False,
) -> bool:
    """Steps in some ways over S keys, the new one's included. Whether all went well."""
    try:
        cache = net.new_cache(B, S)
        cache.fill_with_noise(S - 1)
    except Exception as error:
        bench.write(Run(part, what, ways[0], {"B": B, "S": S}, error=sentence(error)))
        bench.free()
        return False
    counted = counted and bench.on_card
    done = []
    for way in ways:
        make = partial(_step, net, cache, way, counted)
        done.append(bench.run(part, what, way, make, B=B, S=S))
    del cache, make
    bench.free()
    return all(done)


def _step(net: Transformer, cache: Cache, way: str, counted: bool) -> tuple[Call, dict[str, Fact]]:
    """A decode step that leaves the cache as long as it was, one way."""
    token = torch.full((cache.B, 1), 5, device=net.device)
    inside = _torchs_own if way.endswith(TORCHS) else nullcontext

    def call() -> torch.Tensor:
        with inside():  # also while it is captured: a graph keeps its kernels
            return net(token, cache, at=-1, commit=False)

    facts: dict[str, Fact] = {"cache_bytes": cache.nbytes}
    way = way.removesuffix(TORCHS)
    if way == EAGER:
        return call, facts | (kernels(call) if counted else {})
    with torch.no_grad():
        expected = call().float()  # [B, V]
    if way == FUSED:
        with fused():
            replay = captured(call)
            facts |= kernels(call) if counted else {}
    else:
        replay = captured(call)
        facts |= graph_nodes(call) if counted else {}
    got = replay()
    torch.cuda.synchronize()
    assert isinstance(got, torch.Tensor)
    facts["largest_logit"] = float(expected.abs().max())
    facts["largest_difference_from_eager"] = float((got.float() - expected).abs().max())
    return replay, facts


@contextmanager
def fused() -> Iterator[None]:
    """Norms, rotations and activations of a model compiled, one kernel each, meanwhile."""
    attention_, norm_ = twophase.models.attention, twophase.models.norm
    plain = attention_.apply_rope, norm_.rms_norm, GatedMLP.forward
    gated = _compiled(_gated)

    def forward(self: GatedMLP, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(gated(self.gate_proj(x), self.up_proj(x)))

    attention_.apply_rope, norm_.rms_norm = _compiled(apply_rope), _compiled(rms_norm)
    GatedMLP.forward = forward
    try:
        yield
    finally:
        attention_.apply_rope, norm_.rms_norm, GatedMLP.forward = plain


_made: dict[object, Call] = {}


def _compiled(function):  # type: ignore[no-untyped-def]
    """The function compiled, once for all models; sizes stay free, so that one kernel serves all
    batches."""
    if function not in _made:
        _made[function] = torch.compile(function, dynamic=True)
    return _made[function]


def _gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate)·up, [..., F]."""
    return functional.silu(gate) * up


def _prompt(bench: Bench, net: Transformer, T: int, counted: bool) -> tuple[Call, dict[str, Fact]]:
    """A prompt of T tokens into an empty cache, the last logits only."""
    cache = net.new_cache(1, T)
    tokens = torch.randint(0, net.config.V, (1, T), device=net.device)

    def call() -> torch.Tensor:
        return net(tokens, cache, at=-1, commit=False)

    return call, kernels(call) if counted and bench.on_card else {}


def _tiny(bench: Bench, in_graph: bool) -> tuple[Call, dict[str, Fact]]:
    """A thousand kernels that do next to nothing, back to back."""
    x = torch.zeros(1, device=bench.device)

    def call() -> None:
        for _ in range(1000):
            x.add_(1.0)

    return (captured(call) if in_graph else call), {}


def _waited(bench: Bench) -> tuple[Call, dict[str, Fact]]:
    x = torch.zeros(1, device=bench.device)
    return lambda: x.add_(1.0).item(), {}
