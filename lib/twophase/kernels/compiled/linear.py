"""The products of a decode step at batch 1, each with what stands before and after it.

A matrix is read once, row after row, and every row is used once: so these run as fast as memory is
read, if nothing else takes time. Hence norms, activations and residuals are not operations of their
own here: each is done where its numbers are at hand.

Matrices are float32 or the bits of bf16, [outputs, inputs]; all other numbers are fp32. `x` is the
residual stream, [D]. A bias is as long as the outputs, zeros where there is none.

`workers` says in how many runs of neighboring rows a product is cut, one for each core. A core that
reads on and on in one place is 1.1 times as fast as one whose rows are handed to it one by one, and
1.25 times as fast as one that goes to and fro between two matrices.
"""

import math

import numba
import numpy as np

from twophase.kernels.compiled.dot import dots
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import exp, value_of

_f32 = np.float32
# The number by which a loop knows an activation.
ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3}


@inner
def scaled_row(table: np.ndarray, row: int, factor: np.float32) -> np.ndarray:
    """A row of a table in fp32, times a number, fp32 [D]: where the stream of a token begins."""
    x = np.empty(table.shape[1], _f32)
    for i in range(len(x)):
        x[i] = value_of(table[row, i]) * factor
    return x


@inner
def normalize(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, eps: np.float32, out: np.ndarray
) -> None:
    """RMSNorm of x, or LayerNorm where there is a `shift` (else its length is 0): out [D]."""
    D = x.shape[0]
    mean = _f32(0)
    if shift.shape[0]:
        for i in range(D):
            mean += x[i]
        mean /= _f32(D)
    square = _f32(0)
    for i in range(D):
        square += (x[i] - mean) * (x[i] - mean)
    factor = _f32(1) / np.sqrt(square / _f32(D) + eps)
    for i in range(D):
        out[i] = (x[i] - mean) * factor * scale[i]
    for i in range(shift.shape[0]):
        out[i] += shift[i]


@inner
def times_sigmoid(x: np.float32, z: np.float32) -> np.float32:
    """x · sigmoid(z). For z below -88, where `exp` ends, it is taken for 0 (at most x · 6e-39 off),
    but for x of -inf: no number."""
    far = z < _f32(-88)
    return x * _f32(0) if far else x / (_f32(1) + exp(_f32(88) if far else -z))


@inner
def silu(x: np.float32) -> np.float32:
    """x · sigmoid(x)."""
    return times_sigmoid(x, x)


@inner
def gelu_tanh(x: np.float32) -> np.float32:
    """GELU by its formula with tanh. x/2 · (1 + tanh(z/2)) is x · sigmoid(z): the same number, but
    the 1 takes no digits where the tangent is near -1."""
    z = _f32((8 / math.pi) ** 0.5) * (x + _f32(0.044715) * x * x * x)
    return times_sigmoid(x, z)


@inner
def activate(kind: int, x: np.float32) -> np.float32:
    """An activation of one number, by its place in ACTIVATIONS."""
    if kind == 0:
        return silu(x)
    if kind == 1:
        return x * _f32(0.5) * (_f32(1) + _f32(math.erf(x * _f32(0.5**0.5))))
    if kind == 2:
        return gelu_tanh(x)
    return x if x > _f32(0) or x != x else _f32(0)  # NaN stays


@inner
def activate_all(kind: int, y: np.ndarray) -> None:
    """`activate` of all numbers, in place: a loop without a choice in it runs on vectors."""
    if kind == 0:
        for i in range(len(y)):
            y[i] = silu(y[i])
    elif kind == 2:
        for i in range(len(y)):
            y[i] = gelu_tanh(y[i])
    else:
        for i in range(len(y)):
            y[i] = activate(kind, y[i])


@inner
def share(worker: int, workers: int, rows: int) -> tuple[int, int]:
    """The first of the rows that one of so many workers has, and the one behind its last."""
    return worker * rows // workers, (worker + 1) * rows // workers


@inner
def project(
    w: np.ndarray, h: np.ndarray, bias: np.ndarray, first: int, begin: int, end: int, y: np.ndarray
) -> None:
    """y = w h + bias, where w's rows begin at `first` of y: those from `begin` to `end` of y."""
    begin, end = max(0, begin - first), min(w.shape[0], end - first)  # of w
    dots(w, begin, end, h, y, first + begin)
    for i in range(first + begin, first + end):
        y[i] += bias[i]


@loop
def norm_project(
    x: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    eps: np.float32,
    w_first: np.ndarray,
    w_second: np.ndarray,
    w_third: np.ndarray,
    bias: np.ndarray,
    h: np.ndarray,
    y: np.ndarray,
    workers: int,
) -> None:
    """Three matrices times the norm of x, one below the other: queries, keys and values. A matrix
    may have no rows. h [D] is left with the norm of x; y takes the products."""
    normalize(x, scale, shift, eps, h)
    second, third = w_first.shape[0], w_first.shape[0] + w_second.shape[0]
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, y.shape[0])
        project(w_first, h, bias, 0, begin, end, y)
        project(w_second, h, bias, second, begin, end, y)
        project(w_third, h, bias, third, begin, end, y)


@loop
def norm_activate(
    x: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    eps: np.float32,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    bias: np.ndarray,
    activation: int,
    h: np.ndarray,
    y: np.ndarray,
    workers: int,
) -> None:
    """The first half of an MLP: y = activation(w_gate h + bias) · (w_up h + bias) with h the norm
    of x. The biases lie one behind the other. Without a gate (no rows) the MLP is plain:
    y = activation(w_up h + bias)."""
    normalize(x, scale, shift, eps, h)
    gates = w_gate.shape[0]
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, y.shape[0])
        if gates:
            project(w_gate, h, bias, 0, begin, end, y)
        else:
            project(w_up, h, bias, 0, begin, end, y)
        activate_all(activation, y[begin:end])
        if gates:
            ups = np.empty(end - begin, _f32)
            dots(w_up, begin, end, h, ups, 0)
            for i in range(end - begin):
                y[begin + i] *= ups[i] + bias[gates + begin + i]


@loop
def project_add(
    w: np.ndarray, bias: np.ndarray, h: np.ndarray, x: np.ndarray, workers: int
) -> None:
    """x += w h + bias: what attention or MLP adds to the stream."""
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, x.shape[0])
        added = np.empty(end - begin, _f32)
        dots(w, begin, end, h, added, 0)
        for i in range(end - begin):
            x[begin + i] += added[i] + bias[begin + i]


@loop
def project_norm_add(
    w: np.ndarray,
    bias: np.ndarray,
    h: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    eps: np.float32,
    y: np.ndarray,
    x: np.ndarray,
    workers: int,
) -> None:
    """x += norm(w h + bias), as Gemma adds; y [D] is scratch."""
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, x.shape[0])
        project(w, h, bias, 0, begin, end, y)
    normalize(y, scale, shift, eps, y)
    for i in range(x.shape[0]):
        x[i] += y[i]
