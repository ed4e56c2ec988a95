"""The selective state space of Mamba: a memory of fixed size that each token decides how to fade,
write and read.

A channel keeps d_state numbers h. A token brings a step size dt and two vectors B and C, and does

    h ← exp(dt·A)·h + dt·B·x        y = C·h + skip·x

with A < 0 learned: a long step forgets the past and writes the token, a short one passes it by.
Source: Gu and Dao 2023 (Mamba, arXiv 2312.00752), algorithm 2 and section 3.3. What the course
calls `B_in` is the paper's B.

The dtype of the memory matters more than that of keys and values, which are rounded once: it is
rounded at every update. In bf16 it cannot fade by less than 1 part in 512, since the product rounds
back to what it was.
"""

import torch

from twophase.kernels.attention_inputs import check_tensors

Pair = tuple[torch.Tensor, torch.Tensor]


def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
    n_new: torch.Tensor | None = None,
) -> Pair:
    """Each channel's weighted sum of its last W inputs: x [B, T, d_inner] → the same shape, and the
    last W inputs.

    weight [d_inner, W], the newest input's last; bias [d_inner]. `state` [B, d_inner, W] holds the
    last inputs before x, oldest first; None for zeros. `n_new` [B]: only the first so many inputs
    of each sequence are real, and the last W are taken from these; None: all. ValueError if the
    shapes do not fit.
    """
    check_tensors("a convolution", *(t for t in (x, weight, bias, state) if t is not None))
    if x.ndim != 3 or weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        got = ", ".join(str(list(t.shape)) for t in (x, weight, bias) if t is not None)
        raise ValueError(
            "a convolution takes x [B, T, d_inner], weight [d_inner, W] and bias [d_inner] or none;"
            f" got {got}."
        )
    B, T, d_inner = x.shape
    W = weight.shape[1]
    if state is None:
        state = x.new_zeros(B, d_inner, W)
    if weight.shape[0] != d_inner or state.shape != (B, d_inner, W):
        raise ValueError(
            f"a convolution of x {list(x.shape)} takes weight [{d_inner}, W] and state [{B},"
            f" {d_inner}, W]; got {list(weight.shape)} and {list(state.shape)}."
        )
    inputs = torch.cat([state.to(x.dtype).transpose(1, 2), x], dim=1)  # [B, W + T, d_inner]
    # Shifted sums, in fp32 or wider: torch's convolution goes from channel to channel in bf16.
    wide = torch.promote_types(x.dtype, torch.float32)
    shifted, weight = inputs.to(wide), weight.to(wide)
    y = shifted[:, 1 : T + 1] * weight[:, 0]  # [B, T, d_inner]
    for w in range(1, W):
        y = torch.addcmul(y, shifted[:, w + 1 : w + 1 + T], weight[:, w])  # [B, T, d_inner]
    if bias is not None:
        y = y + bias.to(wide)
    if n_new is None:
        last = inputs[:, T:]  # [B, W, d_inner]
    else:
        where = n_new[:, None] + torch.arange(W, device=x.device)  # [B, W]
        last = inputs.gather(1, where[:, :, None].expand(-1, -1, d_inner))  # [B, W, d_inner]
    return y.to(x.dtype), last.transpose(1, 2)  # [B, T, d_inner], [B, d_inner, W]


def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None = None,
) -> Pair:
    """The recurrence, token by token: outputs [B, T, d_inner] and the state after the last token,
    [B, d_inner, d_state].

    x and dt > 0 [B, T, d_inner]; A < 0 [d_inner, d_state]; B_in and C [B, T, d_state]; skip
    [d_inner]; `state` is the state before the first token, None for zeros. Computes in fp32 (fp64
    for fp64); outputs have the dtype of x. Raises ValueError if the shapes do not fit or there is
    no token.
    """
    xs, dts, A, Bs, Cs, skip, h = prepare(x, dt, A, B_in, C, skip, state)
    outputs = []
    for t in range(x.shape[1]):
        fade = torch.exp(dts[:, t, :, None] * A)  # [B, d_inner, d_state]
        h = (
            fade * h + (dts[:, t] * xs[:, t])[:, :, None] * Bs[:, t, None, :]
        )  # [B, d_inner, d_state]
        outputs.append((h * Cs[:, t, None, :]).sum(-1))  # [B, d_inner]
    y = torch.stack(outputs, dim=1) + skip * xs  # [B, T, d_inner]
    return y.to(x.dtype), h


def prepare(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """The arguments of a scan in its precision, with a state. ValueError if the shapes do not
    fit."""
    state = check_scan(x, dt, A, B_in, C, skip, state)
    wide = torch.promote_types(x.dtype, torch.float32)
    return tuple(tensor.to(wide) for tensor in (x, dt, A, B_in, C, skip, state))


def check_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None,
) -> torch.Tensor:
    """The state before the first token [B, d_inner, d_state], zeros for None. ValueError if the
    shapes of a scan do not fit or there is no token."""
    check_tensors("a scan", *(t for t in (x, dt, A, B_in, C, skip, state) if t is not None))
    if x.ndim != 3 or A.ndim != 2:
        raise ValueError(
            "a scan takes x [B, T, d_inner] and A [d_inner, d_state]; got"
            f" {list(x.shape)} and {list(A.shape)}."
        )
    B, T, d_inner = x.shape
    d_state = A.shape[-1]
    if state is None:
        state = x.new_zeros(B, d_inner, d_state)
    expected = {
        "dt": (dt, (B, T, d_inner)),
        "A": (A, (d_inner, d_state)),
        "B_in": (B_in, (B, T, d_state)),
        "C": (C, (B, T, d_state)),
        "skip": (skip, (d_inner,)),
        "state": (state, (B, d_inner, d_state)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise ValueError(
                f"a scan of x {list(x.shape)} takes {name} {list(shape)}; got {list(tensor.shape)}."
            )
    if T < 1:
        raise ValueError("a scan needs at least one token; got none.")
    return state
