"""How many experts a batch touches, and what that makes a decode step read."""

from twophase.theory._domain import Number, formula


@formula(zero_ok=("B",), ordered=(("k", "E"),))
def expected_experts(B: Number, E: Number, k: Number) -> Number:
    """Distinct experts of a layer that B tokens touch on average: E (1 - (1 - k/E)^B).

    Assumes that every token picks its k of E experts uniformly and independently; a trained router
    is less even.
    """
    return E * (1 - (1 - k / E) ** B)


@formula(zero_ok=("B",), ordered=(("k", "E"),))
def expected_expert_bytes(
    B: Number,
    E: Number,
    k: Number,
    n_moe_layers: Number,
    expert_params: Number,
    bytes_per_param: Number = 2,
) -> Number:
    """Expert weights that one decode step of B sequences reads on average, each touched expert
    once."""
    return n_moe_layers * expected_experts(B, E, k) * expert_params * bytes_per_param
