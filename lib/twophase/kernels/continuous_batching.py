"""Selective batching (Yu et al., 2022, Orca, section 3.2): tokens of many sequences in one row.

Products, norms and the MLP treat every token alike and take the row as it is. Attention must know
whose a token is: it goes sequence by sequence. `padded_attention` is what a batch of one shape does
instead: the same numbers, and many more scores.
"""

from collections.abc import Sequence

import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.span import whole


def ragged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    n_new: Sequence[int],
    ends: Sequence[int] | None = None,
) -> torch.Tensor:
    """Each sequence's queries on its own keys, nothing padded.

    q: [sum(n_new), N, H], one sequence after the other; k, v: [sum(ends), K, H], likewise: sequence
    i has `ends[i]` keys, of which the last `n_new[i]` are those of its queries (`ends` not given:
    all are new). Returns [sum(n_new), N, H]. ValueError where lengths do not add up.
    """
    ends = _checked(q, k, v, n_new, ends)
    out = torch.empty_like(q)
    first = first_key = 0
    for n, end in zip(n_new, ends, strict=True):
        own, keys = slice(first, first + n), slice(first_key, first_key + end)
        out[own] = causal_attention(q[None, own], k[None, keys], v[None, keys])[0]  # [n, N, H]
        first, first_key = first + n, first_key + end
    return out


def padded_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    n_new: Sequence[int],
    ends: Sequence[int] | None = None,
) -> torch.Tensor:
    """The same in one call: every sequence filled up to the longest, and what was filled in is
    masked and thrown away. Shapes and errors as in `ragged_attention`."""
    ends = _checked(q, k, v, n_new, ends)
    B, T, S = len(n_new), max(n_new), max(ends)
    queries = q.new_zeros(B, T, *q.shape[1:])  # [B, T, N, H]
    keys, values = (held.new_zeros(B, S, *held.shape[1:]) for held in (k, v))  # [B, S, K, H]
    counts, lengths = (torch.tensor(n, device=q.device)[:, None] for n in (n_new, ends))  # [B, 1]
    token, key = (torch.arange(n, device=q.device)[None] for n in (T, S))  # [1, T], [1, S]
    real, held = token < counts, key < lengths  # [B, T], [B, S]
    queries[real], keys[held], values[held] = q, k, v
    places = lengths - counts + token  # [B, T]
    mask = key[None] <= places[..., None]  # [B, T, S]
    return causal_attention(queries, keys, values, mask=mask & held[:, None])[real]


def _checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    n_new: Sequence[int],
    ends: Sequence[int] | None,
) -> Sequence[int]:
    """The ends. ValueError unless rows are as long as the lengths say."""
    check_tensors("attention", q, k, v, one_dtype=True)
    ends = list(n_new) if ends is None else ends
    if not n_new or len(ends) != len(n_new):
        raise ValueError("each sequence has a number of new tokens and an end; give both lists.")
    n_new = [whole("the number of new tokens", n, 0) for n in n_new]
    if min(n_new) < 1 or any(n > end for n, end in zip(n_new, ends, strict=True)):
        raise ValueError(
            "each sequence brings at least one token, and ends behind it; got"
            f" {list(n_new)} new ones and ends {list(ends)}."
        )
    if q.shape[0] != sum(n_new) or not k.shape[0] == v.shape[0] == sum(ends):
        raise ValueError(
            f"{sum(n_new)} queries and {sum(ends)} keys are announced; got rows of"
            f" {q.shape[0]}, {k.shape[0]} and {v.shape[0]}."
        )
    return ends
