"""Products of tiles of bf16: what the instruction does, and that attention goes by pairs where
Linux does not lend the registers. (Attention by tiles: `test_kernels_compiled_pairs`.)"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from twophase.kernels.compiled import lanes
from twophase.kernels.compiled.block_tiles import queries_in_tiles
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.tile_registers import (
    aligned_words,
    clear,
    configuration,
    configure,
    load_rows,
    multiply,
    permitted,
    release,
    store_rows,
)

pytestmark = pytest.mark.skipif(
    not lanes.has_tiles(), reason="this processor does not multiply tiles of bf16"
)

# Refuses arch_prctl (158) with EPERM, as a filter of system calls may; then the tests of pairs.
REFUSED = """
import ctypes, struct, sys
import pytest
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 158), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.tile_registers import permitted
assert not inner(lambda: permitted())()
sys.exit(pytest.main(["-q", "-c", "/dev/null", *sys.argv[1:]]))  # no option of any plugin
"""


@inner
def _product(shapes, a, b, c):  # type: ignore[no-untyped-def]
    if not permitted():
        return False
    configure(shapes)
    clear(0)
    load_rows(1, a, 3, a.shape[1])
    load_rows(2, b, 0, b.shape[1])
    multiply(0, 1, 2)
    multiply(0, 1, 2)
    store_rows(0, c, 5, c.shape[1])
    release()
    return True


@pytest.mark.parametrize(("rows", "inner_size", "columns"), [(16, 32, 16), (1, 2, 1), (7, 12, 5)])
def test_a_product_of_tiles_is_that_of_their_matrices(rows, inner_size, columns):
    """Added twice, from and to the middle of wider arrays; all else stays."""
    draws = torch.Generator().manual_seed(0)
    a = torch.randn(rows + 1, 40, generator=draws).bfloat16()
    b = torch.randn(inner_size, columns, generator=draws).bfloat16()
    turned = b.view(-1, 2, columns).transpose(1, 2).contiguous()  # [inner/2, columns, 2]
    words = turned.view(torch.uint16).numpy().reshape(-1).view(np.uint32)  # [inner/2 · columns]
    words = words.reshape(inner_size // 2, columns)
    shapes = configuration(
        (rows, rows, inner_size // 2), (4 * columns, 2 * inner_size, 4 * columns)
    )
    c = np.full((rows + 1, 23), 7, np.float32)
    assert _product(shapes, a.view(torch.uint16).numpy(), words, c)
    found = torch.from_numpy(c.reshape(-1)[5 : 5 + 23 * rows].reshape(rows, 23))
    exact = 2 * a.view(-1)[3 : 3 + 40 * rows].view(rows, 40)[:, :inner_size].double() @ b.double()
    torch.testing.assert_close(found[:, :columns].double(), exact, rtol=1e-5, atol=1e-5)
    assert (found[:, columns:] == 7).all()
    assert (c.reshape(-1)[:5] == 7).all()


@pytest.mark.parametrize(
    ("G", "together"), [(1, 1), (4, 4), (16, 16), (17, 1), (20, 10), (128, 16)]
)
def test_heads_of_a_key_fill_registers_without_a_rest(G, together):
    q = np.arange(2 * G * 64, dtype=np.uint16).reshape(2 * G, 64)
    made = inner(lambda q: queries_in_tiles(q, 2, 48, 32))
    assert inner(lambda: permitted())()
    _, turned, _, _ = made(q)
    inner(lambda: release())()
    assert turned.shape == (2, G // together, 32, together)
    back = turned.transpose(0, 1, 3, 2).reshape(2 * G, 32)  # [N, H/2]
    np.testing.assert_array_equal(back, q.view(np.uint32))


def test_room_begins_with_a_line_of_the_cache():
    made = inner(lambda n: aligned_words(n))
    for n in (1, 15, 16, 1000):
        assert made(n).ctypes.data % 64 == 0
        assert len(made(n)) == n


def test_where_registers_are_refused_attention_goes_by_pairs_and_is_as_exact():
    tests = Path(__file__).with_name("test_kernels_compiled_pairs.py")
    run = subprocess.run(
        [sys.executable, "-c", REFUSED, str(tests), "-k", "each_head or latents"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
