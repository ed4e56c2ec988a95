"""A chain of lines is one cycle through all of them."""

import pytest
import torch

from twophase.kernels.compiled.prefetch import LINE_BYTES
from twophase.kernels.line_chain import chain_of_lines, follow


@pytest.mark.parametrize("lines", [1, 2, 1000])
def test_a_chain_comes_back_after_all_lines_and_not_before(lines):
    torch.manual_seed(0)
    chain = chain_of_lines(lines * LINE_BYTES + LINE_BYTES - 1)
    assert chain.shape == (lines, LINE_BYTES // 8)
    at = [follow(chain, 0, n) for n in range(lines)]
    assert sorted(at) == list(range(lines))
    assert follow(chain, 0, lines) == 0


def test_less_than_a_line_is_no_chain():
    with pytest.raises(ValueError, match="at least one; got 63"):
        chain_of_lines(LINE_BYTES - 1)


@pytest.mark.parametrize(("line", "steps"), [(-1, 1), (4, 1), (0, -1)])
def test_what_is_no_line_and_no_number_of_steps_is_refused(line, steps):
    with pytest.raises(ValueError, match=f"line {line}, {steps} steps"):
        follow(chain_of_lines(4 * LINE_BYTES), line, steps)


def test_what_is_no_chain_is_refused():
    with pytest.raises(ValueError, match="follow takes a chain"):
        follow(torch.ones(4, 8), 0, 1)
