"""The family: small models that differ in one thing each (and in the width of their MLPs, so that
they are about equal in parameters), trained by one recipe; the weights here, on one budget.

All read bytes, have four layers of width 128 and about 0.6 million parameters at work on a token,
but for the target and the draft of speculative decoding, which are larger and smaller. Beside the
family stands `large`: 15 times their size, it read 17 times as many bytes in sequences twice as
long.
"""

from typing import Any

from twophase.models.config import Config
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.theory.sizes import LatentAttention, MixtureOfExperts

_GQA = Config(L=4, D=128, F=256, N=4, K=2, H=32)


def _like_gqa(**changes: Any) -> Config:
    return Config(**{**_GQA.to_dict(), **changes})


# What each is, for the models page.
ABOUT = {
    "mha": "multi-head attention: every query head has keys and values of its own",
    "gqa": "grouped-query attention: two query heads share one KV head",
    "mqa": "multi-query attention: all query heads share one KV head",
    "mla": "latent attention: one latent and one rotated key per token",
    "sliding": "every layer sees the last 32 tokens only",
    "local_global": "three layers with a window of 32, then a global one",
    "cross_layer": "every second layer reads the keys and values of the one before",
    "linear": "linear attention with Taylor features: a state in place of a cache",
    "ssm": "selective state space (Mamba): a state in place of a cache",
    "ssm_attention": "three state-space layers, then one of attention",
    "moe": "a mixture of 8 experts in place of each MLP, 2 per token",
    "diffusion": "masked diffusion: reads both ways, fills in masked bytes in any order",
    "target": "the larger model of speculative decoding",
    "draft": "its small draft",
    "large": "beside the family: 15 times its size, it read 17 times as many bytes",
}

# The MLP is as wide as brings each to about the same number of parameters (of active ones, where
# there are experts).
FAMILY = {
    "mha": _like_gqa(K=4, F=213),
    "gqa": _GQA,
    "mqa": _like_gqa(K=1, F=277),
    "mla": _like_gqa(
        K=4,
        H=48,
        attention="mla",
        mla=LatentAttention(R=32, rope_dim=16, nope_dim=32, v_dim=32),
        F=242,
    ),
    "sliding": _like_gqa(attention="sliding", window=32),
    "local_global": _like_gqa(attention=("sliding", "sliding", "sliding", "gqa"), window=32),
    "cross_layer": _like_gqa(kv_source=(0, 0, 2, 2), F=277),
    "linear": _like_gqa(K=4, attention="linear", linear=LinearAttention(feature_dim=16)),
    "ssm": _like_gqa(
        attention="ssm", ssm=StateSpace(d_inner=256, d_state=16, conv_width=4, dt_rank=8), F=80
    ),
    "ssm_attention": _like_gqa(
        attention=("ssm", "ssm", "ssm", "gqa"),
        ssm=StateSpace(d_inner=256, d_state=16, conv_width=4, dt_rank=8),
        F=124,
    ),
    "moe": _like_gqa(moe=MixtureOfExperts(E=8, k=2, F=128)),
    "diffusion": _like_gqa(causal=False, V=257),
    "target": Config(L=6, D=256, F=576, N=8, K=4, H=32),
    "draft": Config(L=2, D=128, F=256, N=4, K=2, H=32),
}
TRAINED = {**FAMILY, "large": Config(L=8, D=320, F=928, N=10, K=2, H=32, context=512)}
BYTES = {"large": 200_000_000}  # of training text, where it is not the recipe's
STORED_IN_INT8 = ("large",)  # a scale a row; the others lie in their files in bf16
COMPARED = ("mha", "gqa", "mqa", "mla", "sliding", "local_global")  # closely, in chapters 5 to 7
# To know what another seed does to members of other kinds.
REPEATED = ("cross_layer", "linear", "ssm", "ssm_attention", "moe")
SEEDS = {name: (1, 2, 3) if name in (*COMPARED, *REPEATED) else (1,) for name in TRAINED}
