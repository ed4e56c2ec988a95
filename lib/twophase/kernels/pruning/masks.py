"""Which weights of a matrix stay, as masks: True stays. A matrix is [O, I], rows of inputs."""

import torch

from twophase.kernels.span import whole


def magnitude(weight: torch.Tensor) -> torch.Tensor:
    """How much each weight matters by its size alone, [O, I] (Han et al. 2015, arXiv 1506.02626).

    It does not know what the weight is multiplied with.
    """
    return weight.abs()


def wanda(weight: torch.Tensor, input_norms: torch.Tensor) -> torch.Tensor:
    """|weight| times the length of its input over a calibration set, [O, I] (Sun et al. 2023, arXiv
    2306.11695, eq. 1). `input_norms` [I]: the root of the sum of each input's squares."""
    if input_norms.shape != weight.shape[1:] or not bool((input_norms >= 0).all()):
        raise ValueError(
            f"a matrix {list(weight.shape)} needs a length, zero or more, for each of its inputs;"
            f" got {list(input_norms.shape)}."
        )
    return weight.abs() * input_norms


def kept_per_row(scores: torch.Tensor, n: int) -> torch.Tensor:
    """The n best of each row, bool [O, I]; of equals the first. Rows are compared with themselves
    only, so that no output loses all of its inputs. ValueError if a row has fewer."""
    if whole("how many weights of a row stay", n, 1) > scores.shape[1]:
        raise ValueError(f"a row has {scores.shape[1]} weights; {n} of them cannot stay.")
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :n]  # [O, n]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True)


def two_four(scores: torch.Tensor) -> torch.Tensor:
    """The two best of each four neighbors in a row, bool [O, I]; of equals the first (Mishra et al.
    2021, arXiv 2104.08378). ValueError if rows are not made of fours."""
    O, I = scores.shape
    if I % 4:
        raise ValueError(f"rows of {I} inputs are not made of fours: 2:4 needs a multiple of 4.")
    return kept_per_row(scores.reshape(O * I // 4, 4), 2).view(O, I)  # [O·I/4, 4] → [O, I]
