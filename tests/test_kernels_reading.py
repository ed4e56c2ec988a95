"""The yardstick that reads from eight places in turns, or from one, reads every number once."""

import pytest
import torch

from twophase.kernels import reading
from twophase.kernels.compiled.loops import Loop
from twophase.kernels.compiled.widened import STEP
from twophase.kernels.reading import PLACES, sum_of_squares

WHOLE = PLACES * STEP  # numbers that fill all places


@pytest.mark.parametrize("places", [1, PLACES])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, WHOLE - 1, WHOLE, WHOLE + 1, 6 * WHOLE, 6 * WHOLE + 77])
def test_every_number_is_read_once(n, workers, places, monkeypatch):
    """Zeros and ones, each somewhere: what is left out or read twice is off by a whole number."""
    monkeypatch.setattr(reading, "workers_even_if_forked", lambda: workers)
    monkeypatch.setattr(Loop, "on", lambda loop, workers: loop.serial)
    x = torch.zeros(n)
    assert sum_of_squares(x, places) == 0
    for place in {0, n // 3, n // 2, n - 1} & set(range(n)):
        x[place] = 1
        assert sum_of_squares(x, places) == 1
        x[place] = 0
    assert sum_of_squares(torch.ones(n), places) == n


def test_a_matrix_on_all_threads_is_torchs_sum():
    x = torch.randn(300, 1024, generator=torch.Generator().manual_seed(0))
    assert sum_of_squares(x) == pytest.approx(x.double().square().sum().item(), rel=1e-5)


@pytest.mark.parametrize(
    "x", [torch.ones(64).bfloat16(), torch.ones(8, 8).T[1:], torch.ones(4, device="meta")]
)
def test_another_tensor_is_refused(x):
    with pytest.raises(ValueError, match="contiguous fp32 tensor on the CPU; got torch"):
        sum_of_squares(x)


@pytest.mark.parametrize("places", [0, 2, 16])
def test_other_places_are_refused(places):
    with pytest.raises(ValueError, match=f"1 place or from 8; got {places}"):
        sum_of_squares(torch.ones(64), places)
