"""Keys and values in few bits: keys per channel, values per token.

Keys have a few channels that are large at every position: a scale for a channel, over a run of
tokens, keeps them from stretching the grid of the others. Values have none, and their product sums
over tokens: a scale for a token (KIVI: Liu et al. 2024, arXiv 2402.02750, section 3). A run of keys
can only be rounded when it is full, so the newest tokens stay as they are.
"""

import torch

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.numbers import check_numbers
from twophase.kernels.span import whole

AXES = ("channel", "token")


def round_cached(
    x: torch.Tensor, bits: int, axis: str, group: int = 32, newest: int = 0
) -> torch.Tensor:
    """Keys or values [B, S, K, H] after rounding to `bits` and back, affine, in x's dtype.

    axis "channel": each channel of a head has a scale for each run of `group` tokens. "token": each
    token of a head has one for each `group` of its H numbers. The `newest` tokens, and a run that
    is not full, stay as they are. Raises ValueError for another axis, and for sizes that are no
    whole numbers.
    """
    if axis not in AXES:
        raise ValueError(f"scales are per {' or '.join(AXES)}; got {axis!r}.")
    group = whole("the numbers of a group", group, 1)
    newest = whole("the number of newest tokens", newest, 0)
    B, S, K, H = check_numbers(x, 4).shape
    old = max(0, S - newest)
    old -= old % group if axis == "channel" else 0
    if old == 0:
        return x
    how = IntegerFormat(bits, group, affine=True)
    part = x[:, :old]
    if axis == "channel":
        rows = part.permute(0, 2, 3, 1).reshape(-1, old)  # [B·K·H, old]
        found = encode(rows, how).decode().view(B, K, H, old).permute(0, 3, 1, 2)
    else:
        found = encode(part.reshape(-1, H), how).decode().view(B, old, K, H)
    return torch.cat([found.to(x.dtype), x[:, old:]], 1)  # [B, S, K, H]
