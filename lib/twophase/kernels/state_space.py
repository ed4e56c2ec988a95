"""The selective state space of Mamba: a memory of fixed size that each token decides how to fade,
write and read.

A channel keeps d_state numbers h. A token brings a step size dt and two vectors B and C, and does

    h ← exp(dt·A)·h + dt·B·x        y = C·h + skip·x

with A < 0 learned: a long step forgets the past and writes the token, a short one passes it by.
Source: Gu and Dao 2023 (Mamba, arXiv 2312.00752), algorithm 2 and section 3.3. What the course
calls `B_in` is the paper's B.
"""

import torch
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]


class StateSpaceState:
    """What one layer remembers of B sequences, whatever their length.

    `ssm` [B, d_inner, d_state] is the memory, `inputs` [B, d_inner, conv_width] the last inputs of
    the convolution, oldest first. `update(inputs, ssm, T)` takes what they are T tokens later.

    The dtype matters more than for keys and values, which are rounded once: a state is rounded at
    every update. In bf16 it cannot fade by less than 1 part in 512, since the product rounds back
    to what it was.
    """

    def __init__(
        self,
        B: int,
        d_inner: int,
        d_state: int,
        conv_width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(B, d_inner, d_state, conv_width) < 1:
            raise ValueError(
                f"a state needs B, d_inner, d_state and conv_width of at least 1; got {B},"
                f" {d_inner}, {d_state}, {conv_width}."
            )
        self.ssm = torch.zeros(B, d_inner, d_state, dtype=dtype, device=device)
        self.inputs = torch.zeros(B, d_inner, conv_width, dtype=dtype, device=device)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes taken, after one token or a million: `B·d_inner·(d_state + conv_width)` times the
        bytes of a number."""
        return (self.ssm.numel() + self.inputs.numel()) * self.ssm.element_size()

    def update(self, inputs: torch.Tensor, ssm: torch.Tensor, T: int) -> None:
        """Keep what `causal_conv` and `selective_scan` returned for T more tokens. ValueError if
        the shapes differ."""
        if inputs.shape != self.inputs.shape or ssm.shape != self.ssm.shape:
            raise ValueError(
                f"the state takes inputs {list(self.inputs.shape)} and memory"
                f" {list(self.ssm.shape)}; got {list(inputs.shape)} and {list(ssm.shape)}."
            )
        self.inputs.copy_(inputs)
        self.ssm.copy_(ssm)
        self._length += T

    def check_truncate(self, length: int) -> None:
        """Raise ValueError unless `truncate(length)` is possible."""
        if length not in (0, self._length):
            raise ValueError(
                f"a state of {self._length} tokens cannot be unwound to {length}: cut to 0 and read"
                " the tokens again."
            )

    def truncate(self, length: int) -> None:
        """Forget every token from `length` on: all (0) or none; a state has mixed the others beyond
        undoing."""
        self.check_truncate(length)
        if length == 0:
            self.ssm.zero_()
            self.inputs.zero_()
        self._length = length


def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
) -> Pair:
    """Each channel's weighted sum of its last W inputs: x [B, T, d_inner] → the same shape, and the
    last W inputs.

    weight [d_inner, W], the newest input's last; bias [d_inner]. `state` [B, d_inner, W] holds the
    last inputs before x, oldest first; None for zeros. ValueError if the shapes do not fit.
    """
    B, T, d_inner = x.shape
    W = weight.shape[1]
    if state is None:
        state = x.new_zeros(B, d_inner, W)
    if weight.shape[0] != d_inner or state.shape != (B, d_inner, W):
        raise ValueError(
            f"a convolution of x {list(x.shape)} takes weight [{d_inner}, W] and state [{B},"
            f" {d_inner}, W]; got {list(weight.shape)} and {list(state.shape)}."
        )
    inputs = torch.cat([state.to(x.dtype), x.transpose(1, 2)], dim=2)  # [B, d_inner, W + T]
    filters = weight.to(x.dtype)[:, None]  # [d_inner, 1, W]
    y = functional.conv1d(
        inputs[:, :, 1:], filters, bias if bias is None else bias.to(x.dtype), groups=d_inner
    )
    return y.transpose(1, 2), inputs[:, :, T:]  # [B, T, d_inner], [B, d_inner, W]


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
    wide = torch.promote_types(x.dtype, torch.float32)
    return tuple(tensor.to(wide) for tensor in (x, dt, A, B_in, C, skip, state))
