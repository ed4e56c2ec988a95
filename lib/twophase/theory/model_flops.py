"""FLOPs of a whole model whose layers may differ: full, sliding, MLA, state."""

from twophase.theory._ops import Number, formula, half, minimum
from twophase.theory.architecture import Architecture


@formula()
def causal_pairs(T: Number) -> Number:
    """Query-key pairs of T tokens under a causal mask."""
    return half(T * (T + 1))


@formula()
def window_pairs(T: Number, window: Number) -> Number:
    """The same when each query sees at most the last `window` keys, itself included."""
    ramp = minimum(T, window)
    return half(ramp * (ramp + 1)) + (T - ramp) * window


@formula()
def prefill_flops(
    arch: Architecture, B: Number, T: Number, head_at_last_only: bool = False
) -> Number:
    """FLOPs of B prompts of T tokens; see `Architecture.prefill_flops`."""
    total = 2 * T * arch.n_matmul_params()
    if head_at_last_only:
        total = total - 2 * (T - 1) * arch.V * arch.D
    total = total + T * arch.layer_kinds.count("state") * arch.state_flops
    for kind in set(arch.layer_kinds) - {"state"}:
        pairs = window_pairs(T, arch.window) if kind == "sliding" else causal_pairs(T)
        total = total + arch.layer_kinds.count(kind) * pairs * _flops_per_pair(
            arch, kind, absorbed=False
        )
    return B * total


@formula()
def decode_step_flops(arch: Architecture, B: Number, S: Number) -> Number:
    """FLOPs of one token for each of B sequences; see `Architecture.decode_step_flops`."""
    total: Number = 2 * arch.n_matmul_params() + arch.layer_kinds.count("state") * arch.state_flops
    for kind in set(arch.layer_kinds) - {"state"}:
        keys = minimum(S, arch.window) if kind == "sliding" else S
        total = total + arch.layer_kinds.count(kind) * keys * _flops_per_pair(
            arch, kind, absorbed=True
        )
    return B * total


def _flops_per_pair(arch: Architecture, kind: str, absorbed: bool) -> int:
    """Score and weighted value. Absorbed MLA scores against the latent and sums latents, for each
    of N heads."""
    if kind == "mla" and arch.mla is not None:
        m = arch.mla
        width = 2 * m.R + m.rope_dim if absorbed else m.nope_dim + m.rope_dim + m.v_dim
        return 2 * arch.N * width
    return 4 * arch.N * arch.H
