"""What several exercises withhold: put together, or asked about one query at a time, each of these
is their answer as well."""

from __future__ import annotations

ATTENTION = (  # all of the library that weighs values by a softmax of scores
    "twophase.kernels.attention.causal_attention",
    "twophase.kernels.attention.full_attention",
    "twophase.kernels.attention.naive_attention",
    "twophase.kernels.attention._prefill",
    "twophase.kernels.attention._in_blocks",
    "twophase.kernels.attention._attend",
    "twophase.kernels.attention._spelled_out",
    "twophase.kernels.attention_training.attention_with_gradient",
    "twophase.kernels.attention_training._Attention",
    "twophase.kernels.online_softmax.flash_attention",
    "twophase.kernels.grouped_query_attention.decode_by_head",
    "twophase.kernels.grouped_query_attention.attend",
    "twophase.kernels.latent_attention.expanded_attention",
    "twophase.kernels.latent_attention.attend_unfolded",
    "twophase.kernels.latent_attention.absorbed_attention",
    "twophase.kernels.latent_attention.attend_latents",
    "twophase.kernels.compiled.attention.compiled_attention",
    "twophase.kernels.compiled.attention.compiled_paged_attention",
    "twophase.kernels.compiled.attention.compiled_latent_attention",
    "twophase.kernels.compiled.parts.attend",
    "twophase.kernels.compiled.parts.turn_append_attend",
    "twophase.kernels.compiled.parts.attend_latents",
    "twophase.kernels.compiled.parts._attend_task",
    "twophase.kernels.compiled.parts._latent_task",
)
