"""Which half of a block has loops, by its kind."""

from collections.abc import Callable

from twophase.models.attention import GroupedQueryAttention
from twophase.models.compiled.experts import Experts
from twophase.models.compiled.halves import MLP, Attention, Half
from twophase.models.compiled.latent import AbsorbedAttention
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.recurrent import LinearState, StateSpaceState
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.weights import NoKernel
from twophase.models.latent_attention import LatentAttention
from twophase.models.linear_attention import LinearAttention
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.state_space import SelectiveStateSpace

MAKES: dict[type, Callable[[PlainHalf, Workspace], Half]] = {
    GroupedQueryAttention: Attention,
    LatentAttention: AbsorbedAttention,
    LinearAttention: LinearState,
    SelectiveStateSpace: StateSpaceState,
    GatedMLP: MLP,
    PlainMLP: MLP,
    MixtureOfExperts: Experts,
}


def make_half(half: PlainHalf, work: Workspace) -> Half:
    """A half in loops. Raises NoKernel where there are none."""
    kind = type(half.layer)
    if kind not in MAKES:
        raise NoKernel(f"a {kind.__name__} has no compiled loops")
    return MAKES[kind](half, work)
