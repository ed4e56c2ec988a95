"""Attacks and clumsiness on the course's own exercises, chapters 5 to 14: what attacks earns
nothing and harms no right answer, what is merely odd loses nothing.

The corpus in `hostile` is written on a small course of its own; here its cells stand in real
notebooks, beside others that can be written for any exercise.
"""

from __future__ import annotations

import json

import pytest
from hostile.notebooks import CORPUS
from test_grading_clumsy import Cells, cells_of, graded, is_answer, own, wrong

from twophase.checks import registry

TOPICS = [
    *("grouped_query_attention", "latent_attention", "local_attention", "sharding"),
    *("mixture_of_experts", "quantization", "pruning", "speculative_decoding"),
]
OWN_CELL = "own cell: "

# a body for every function of an answer; `name` is what it is called
ATTACKS = {
    "equal to everything": "class A:\n    __eq__ = lambda s, o: True\nreturn A()",
    "a float equal to everything": (
        "class F(float):\n    __eq__ = lambda s, o: True\n    __sub__ = lambda s, o: 0.0\n"
        "return F(1)"
    ),
    "a list that is never different": (
        "class L(list):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
        "return L([1])"
    ),
    "a tensor of a class of its own": (
        "import torch\nclass T(torch.Tensor):\n    equal = lambda s, o: True\n"
        "return torch.zeros(2).as_subclass(T)"
    ),
    "not a number": "return float('nan')",
    "nothing": "return None",
    "its arguments": "return args",
    "its first argument": "return args[0] if args else 0",
    "whatever frames above hold": (
        "import sys\nf = sys._getframe()\nwhile f:\n    for k in ('expected', 'reference'):\n"
        "        if k in f.f_locals: return f.f_locals[k]\n    f = f.f_back\nreturn 0"
    ),
    "whatever the collector finds": (
        "import gc\nfor o in gc.get_objects():\n"
        "    if type(o).__name__ in ('Bench', 'Exercise', 'Case'): return o\nreturn 0"
    ),
    "the library's function of that name": (
        "import sys\nfor m in list(sys.modules):\n    if m.startswith('twophase'):\n"
        "        f = getattr(sys.modules[m], name, None)\n"
        "        if f is not None: return f(*args, **kwargs)\nreturn 0"
    ),
    "the topic's modules read again": (
        "import importlib, sys\nfor m in list(sys.modules):\n"
        "    if m.startswith(('twophase.kernels.', 'twophase.theory.')):\n"
        "        f = getattr(importlib.reload(sys.modules[m]), name, None)\n"
        "        if f is not None: return f(*args, **kwargs)\nreturn 0"
    ),
    "the checks": "import twophase.checks.registry as r\nreturn r.load(name)",
    "the checks' files": (
        "import glob, twophase\n"
        "return open(glob.glob(twophase.__path__[0] + '/checks/*/*.py')[0]).read()"
    ),
    "an exception that passes for a refusal": "raise ValueError('refused')",
    "the end of the process": "import os\nos._exit(0)",
    "an exit": "raise SystemExit(0)",
    "a state in a temporary file": (
        "import tempfile\nwith open(tempfile.gettempdir() + '/n', 'a+') as f:\n"
        "    f.write('x'); f.seek(0); return len(f.read())"
    ),
    "a count of its calls": "COUNT.append(1)\nreturn len(COUNT)",
    "more than anybody reads": "return [0] * 10**6",
    "itself, for ever": "return globals()[name](*args, **kwargs)",
}
# a cell before all others, which a right answer must survive
HONEST = {
    "libraries by other names": "import numpy\nimport torch as t\nimport math as m, random",
    "the lab once more": "from twophase.lab import *",
    "options of printing": "import numpy as np; np.set_printoptions(precision=2, suppress=True)",
    "seeds": "import random, torch; random.seed(5); torch.manual_seed(5)",
    "a temporary file": (
        "import tempfile\nwith tempfile.NamedTemporaryFile('w') as f: f.write('notes')"
    ),
    "a folder of notes": (
        "import tempfile, json\nwith tempfile.TemporaryDirectory() as d:\n"
        "    json.dump({'a': 1}, open(d + '/notes.json', 'w'))"
    ),
    "a step of training": (
        "import torch\nw = torch.zeros(2, requires_grad=True)\n"
        "((w - 1) ** 2).sum().backward(); torch.optim.SGD([w], 0.1).step()"
    ),
    "an error of its own": "1 / 0",
    "a plot": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()",
    "a log": "import logging; logging.basicConfig(level=10); logging.getLogger('x').info('y')",
    "a thread that ends": (
        "import threading\none = threading.Thread(target=print); one.start(); one.join()"
    ),
    "magics": "%timeit -n 1 -r 1 1 + 1\n%who",
    "deep recursion": "import sys; sys.setrecursionlimit(5000)",
    "an event loop": "import asyncio\nawait asyncio.sleep(0)",
}
# below an answer's source, in its cell; `names` are its functions
BELOW = {
    "prints around every call": (
        "import functools, inspect\ndef loud(f):\n    @functools.wraps(f)\n"
        "    def g(*args, **kwargs):\n        print(f.__name__, args)\n"
        "        return f(*args, **kwargs)\n    return g\n"
        "for n in names:\n"
        "    if inspect.isfunction(globals()[n]): globals()[n] = loud(globals()[n])"
    ),
    "a test of its own": "assert all(callable(globals()[n]) for n in names), 'mine'",
    "a table kept on the function": (
        "for n in names:\n    try: globals()[n].table = {}\n    except AttributeError: pass"
    ),
    "its help": "for n in names: help(globals()[n])",
    "its source": "import inspect\nfor n in names: print(inspect.getsource(globals()[n]))",
    "a copy under another name": "mine = {n: globals()[n] for n in names}",
}


def attacked(topic: str, body: str) -> Cells:
    """The untouched notebook with this in the place of every answer."""
    lines = body.replace("\n", "\n    ")
    made = []
    for cell in cells_of(topic, "exercises"):
        if is_answer(cell):
            entries = registry.load(cell["metadata"]["nbgrader"]["grade_id"]).entries
            source = "\n\n".join(
                f"COUNT = []\ndef {n}(*args, **kwargs):\n    name = {n!r}\n    {lines}"
                for n in entries
            )
            cell = cell | {"source": source}
        made.append(cell)
    return made


def with_below(topic: str, below: str) -> Cells:
    made = []
    for cell in cells_of(topic):
        if is_answer(cell):
            entries = registry.load(cell["metadata"]["nbgrader"]["grade_id"]).entries
            cell = cell | {"source": f"{cell['source']}\n\nnames = {entries!r}\n{below}"}
        made.append(cell)
    return made


def cases(sources: dict[str, str], every: int = 24) -> list[object]:
    """Each with every topic; some in `make test`, all in `make test-more`."""
    return [
        pytest.param(
            topic,
            source,
            id=f"{topic} {name}",
            marks=[] if (3 * i + n) % every == 0 else [pytest.mark.more],
        )
        for i, topic in enumerate(TOPICS)
        for n, (name, source) in enumerate(sources.items())
    ]


def own_cells_of_the_corpus() -> dict[str, str]:
    """The corpus' cells that stand before all answers, and harm none."""
    found = [h for kind in CORPUS.values() for h in kind if h.name.startswith(OWN_CELL)]
    return {
        h.name.removeprefix(OWN_CELL): "".join(json.loads(h.data)["cells"][1]["source"])
        for h in found
        if not h.lost
    }


@pytest.mark.parametrize(("topic", "body"), cases(ATTACKS))
def test_an_attack_in_place_of_every_answer_earns_nothing(topic: str, body: str) -> None:
    seen = graded(topic, attacked(topic, body))
    assert [q.verdict.exercise_id for q in seen.questions if q.verdict.points] == []


@pytest.mark.parametrize(("topic", "source"), cases(HONEST))
def test_an_odd_cell_above_costs_no_right_answer(topic: str, source: str) -> None:
    assert wrong(graded(topic, [own(source), *cells_of(topic)])) == []


@pytest.mark.parametrize(("topic", "below"), cases(BELOW))
def test_an_odd_line_below_an_answer_costs_nothing(topic: str, below: str) -> None:
    assert wrong(graded(topic, with_below(topic, below))) == []


@pytest.mark.parametrize(("topic", "source"), cases(own_cells_of_the_corpus(), every=120))
def test_a_cell_of_the_corpus_earns_nothing_in_a_real_notebook(topic: str, source: str) -> None:
    seen = graded(topic, [own(source), *cells_of(topic, "exercises")])
    assert sum(q.verdict.points for q in seen.questions) == 0


def test_an_answer_below_a_closed_output_shows_values_and_one_finds_the_number_of_its_stream() -> (
    None
):
    """As in a kernel, where what a cell shows goes another way than what it prints."""
    closed = own("import sys\nsys.stdout.close()")
    cells = [
        c | {"source": f"import faulthandler\nfaulthandler.enable()\n{c['source']}\n1 + 1"}
        if is_answer(c)
        else c
        for c in cells_of("local_attention")
    ]
    seen = graded("local_attention", [closed, *cells])
    assert (wrong(seen), seen.flags) == ([], [])
    assert {q.cell.error for q in seen.questions} == {""}


def test_a_shell_that_a_cell_has_broken_is_an_error_of_the_cells_below_and_no_nonsense() -> None:
    broken = own("get_ipython().run_cell = None")
    seen = graded("local_attention", [broken, *cells_of("local_attention")])
    assert wrong(seen) == []  # each by itself
    assert {flag.name for flag in seen.flags} == {"right_alone"}
    assert {q.cell.error for q in seen.questions} == {
        "TypeError: 'NoneType' object is not callable"
    }
