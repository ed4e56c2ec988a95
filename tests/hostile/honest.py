"""Ordinary notebooks, written differently from ours: every answer keeps its points."""

from __future__ import annotations

import json

from hostile.attack import Hostile, keeps, keeps_beside
from hostile.course import RIGHT, cells

R = RIGHT["bytes"]
BYTES = {
    "a lambda": "bytes_of = lambda n, w: 2 * n * w",
    "a partial": (
        "import functools\ndef times(k, n, w): return k * n * w\nbytes_of ="
        " functools.partial(times, 2)"
    ),
    "an object that can be called": (
        "class Formula:\n    def __call__(self, n_tokens, width): return 2 * n_tokens *"
        " width\nbytes_of = Formula()"
    ),
    "a method": "class Formula:\n    def of(self, n, w): return 2 * n * w\nbytes_of = Formula().of",
    "a static method": (
        "class Formula:\n    @staticmethod\n    def of(n, w): return 2 * n * w\nbytes_of ="
        " Formula.of"
    ),
    "a decorator": (
        "import functools\ndef loud(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n       "
        " print('called', a)\n        return f(*a, **k)\n    return g\n@loud\n" + R
    ),
    "a cache": "import functools\n@functools.lru_cache(maxsize=None)\n" + R,
    "a closure": (
        "def make(k):\n    def f(n, w): return k * n * w\n    return f\nbytes_of = make(2)"
    ),
    "recursion": "def bytes_of(n, w): return 0 if n == 0 else 2 * w + bytes_of(n - 1, w)",
    "a generator inside": "def bytes_of(n, w): return sum(2 * w for _ in range(n))",
    "a dispatch": (
        "import functools\n@functools.singledispatch\ndef bytes_of(n, w): return 2 * n * w"
    ),
    "any arguments": "def bytes_of(*args, **kwargs): return 2 * args[0] * args[1]",
    "arguments of its own": (
        "def bytes_of(n, w, dtype_bytes=1, *, both=True): return (1 + both) * n * w * dtype_bytes"
    ),
    "type hints": (
        "from typing import Annotated, Optional\ndef bytes_of(n_tokens: int, width: 'Width') ->"
        " Optional['Bytes']: return 2 * n_tokens * width"
    ),
    "the future": (
        "from __future__ import annotations\ndef bytes_of(n: Undefined, w: Later[1]) -> Never |"
        " None: return 2 * n * w"
    ),
    "a match": (
        "def bytes_of(n, w):\n    match (n, w):\n        case (0, _): return 0\n        case (a,"
        " b): return 2 * a * b"
    ),
    "a walrus": "def bytes_of(n, w): return (x := n * w) + x",
    "a loop": (
        "def bytes_of(n, w):\n    t = 0\n    for _ in range(n):\n        for _ in range(w): t +="
        " 2\n    return t"
    ),
    "numpy": "def bytes_of(n, w): return np.int64(2) * n * w",
    "numpy's product": "def bytes_of(n, w): return np.prod([2, n, w])",
    "an array of no axes": "def bytes_of(n, w): return np.array(2 * n * w)",
    "a vectorized function": "bytes_of = np.vectorize(lambda n, w: 2 * n * w)",
    "torch": "import torch\ndef bytes_of(n, w): return torch.tensor(2 * n * w)",
    "math": "import math\ndef bytes_of(n, w): return math.prod((2, n, w))",
    "sympy": (
        "import sympy\nn_, w_ = sympy.symbols('n w')\nexpression = 2 * n_ * w_\ndef bytes_of(n, w):"
        " return int(expression.subs({n_: n, w_: w}))"
    ),
    "asyncio": (
        "import asyncio\nasync def later(n, w):\n    await asyncio.sleep(0)\n    return 2 * n *"
        " w\ndef bytes_of(n, w): return asyncio.run(later(n, w))"
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\ndef bytes_of(n, w):\n    with"
        " ThreadPoolExecutor(4) as pool: return sum(pool.map(lambda _: 2 * w, range(n)))"
    ),
    "a thread of its own": (
        "import threading\ndef bytes_of(n, w):\n    out = []\n    t ="
        " threading.Thread(target=lambda: out.append(2 * n * w)); t.start(); t.join()\n    return"
        " out[0]"
    ),
    "a context": (
        "import contextlib, decimal\ndef bytes_of(n, w):\n    with decimal.localcontext(),"
        " contextlib.suppress(ValueError): return int(decimal.Decimal(2) * n * w)"
    ),
    "a text in between": (
        "import json, io\ndef bytes_of(n, w): return json.loads(io.StringIO(json.dumps(2 * n *"
        " w)).read())"
    ),
    "eval": "def bytes_of(n, w): return eval('2 * n * w')",
    "state": (
        "table = {}\ndef bytes_of(n, w):\n    table.setdefault((n, w), 2 * n * w)\n    return"
        " table[n, w]"
    ),
    "a global": (
        "WIDTH_FACTOR = 2\ndef bytes_of(n, w):\n    global calls\n    calls ="
        " globals().get('calls', 0) + 1\n    return WIDTH_FACTOR * n * w"
    ),
    "names of other letters": (
        "def größe(ширина, 長さ): return 2 * ширина * 長さ\nbytes_of = größe  # 👍 “quoted”"
    ),
    "an indent of one": "def bytes_of(n, w):\n return 2 * n * w",
    "tabs": "def bytes_of(n, w):\n\tif n:\n\t\treturn 2 * n * w\n\treturn 0",
    "semicolons": "def bytes_of(n, w): x = n * w; return x + x;",
    "a long docstring": (
        "def bytes_of(n, w):\n    r'''\\frac{2 n w}{1} </pre> '''\n    return 2 * n * w"
    ),
    "it, and then its use": R + "\nprint(bytes_of(3, 4))\nbytes_of(5, 6)",
    "it, and then a failing test": R + "\nassert bytes_of(1, 1) == 3, 'I thought so'",
    "it, and then an error": R + "\nraise ValueError('enough')",
    "it, and then a missing module": R + "\nimport pandas_of_mine as pd",
    "it, and then a plot": (
        R + "\nimport matplotlib.pyplot as plt\nplt.plot([bytes_of(n, 2) for n in range(9)]);"
        " plt.title('$x$'); plt.show()"
    ),
    "it after a wrong one": "def bytes_of(n, w): return n * w\n" + R,
    "it, with the stub's line after": R + "\n    raise NotYet('kv_cache-bytes')",
    "it under a condition": "if __name__ == '__main__':\n    def bytes_of(n, w): return 2 * n * w",
    "it in a try": (
        "try:\n    from my_helpers import bytes_of\nexcept ImportError:\n    def bytes_of(n, w):"
        " return 2 * n * w"
    ),
    "%%time": "%%time\n" + R,
    "%%capture": "%%capture out\n" + R,
    "a magic in between": "%matplotlib inline\n" + R + "\n%timeit -n 1 -r 1 bytes_of(1, 2)",
    "an await": "import asyncio\nawait asyncio.sleep(0)\n" + R,
    "noise": (
        "import sys, warnings\ndef bytes_of(n, w):\n    print('x' * 10**5); print('!',"
        " file=sys.stderr); warnings.warn('careful')\n    return 2 * n * w"
    ),
    "a bar": (
        'import sys\ndef bytes_of(n, w):\n    for i in range(100): print(f\'\\r{i}%|{"█" * (i //'
        " 10)}', end='', file=sys.stderr, flush=True)\n    return 2 * n * w"
    ),
    "a log": (
        "import logging\nlogging.basicConfig(level='DEBUG')\ndef bytes_of(n, w):\n   "
        " logging.getLogger('x').info('n=%s', n)\n    return 2 * n * w"
    ),
    "a clock": (
        "import time\ndef bytes_of(n, w):\n    t = time.perf_counter()\n    return 2 * n * w +"
        " int((time.perf_counter() - t) // 1000)"
    ),
    "chance": (
        "import random\ndef bytes_of(n, w):\n    random.seed(); np.random.seed(1)\n    return 2 * n"
        " * w + int(random.random())"
    ),
    "print instead of nothing": R + "\ncheck('kv_cache-bytes'); hint('kv_cache-bytes'); progress()",
}
COUNTERS = {
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass Counter:\n    total: int = 0\n    def"
        " add(self, n: int) -> int:\n        if n < 0: raise ValueError(n)\n        self.total +="
        " n\n        return self.total"
    ),
    "slots": (
        "class Counter:\n    __slots__ = ('total',)\n    def __init__(self, start): self.total ="
        " start\n    def add(self, n):\n        if n < 0: raise ValueError\n        self.total +="
        " n\n        return self.total"
    ),
    "a property": (
        "class Counter:\n    def __init__(self, start): self._t = [start]\n    @property\n    def"
        " total(self): return sum(self._t)\n    def add(self, n):\n        if n < 0: raise"
        " ValueError('n')\n        self._t.append(n)\n        return self.total"
    ),
    "a parent": (
        "from abc import ABC, abstractmethod\nclass Base(ABC):\n    def __init__(self, start):"
        " self.total = start\n    @abstractmethod\n    def add(self, n): ...\nclass"
        " Counter(Base):\n    def add(self, n):\n        if n < 0: raise ValueError\n       "
        " self.total += n\n        return self.total"
    ),
    "a module": (
        "import torch\nclass Counter(torch.nn.Module):\n    def __init__(self, start=0):\n       "
        " super().__init__()\n        self.total = start\n    def add(self, n):\n        if n < 0:"
        " raise ValueError\n        self.total = self.total + n\n        return self.total"
    ),
    "a function that makes one": (
        "def Counter(start=0):\n    class C:\n        total = start\n        def add(self, n):\n   "
        "         if n < 0: raise ValueError\n            self.total += n\n            return"
        " self.total\n    return C()"
    ),
    "an error of its own": (
        "class Negative(ValueError): pass\nclass Counter:\n    def __init__(self, start):"
        " self.total = np.int64(start)\n    def add(self, n):\n        if n < 0: raise"
        " Negative('no')\n        self.total += n\n        return self.total"
    ),
    "a callable method": (
        "import functools\nclass Counter:\n    def __init__(self, start):\n        self.total ="
        " start\n        self.add = functools.partial(self._add, sign=1)\n    def _add(self, n,"
        " sign):\n        if n < 0: raise ValueError\n        self.total += sign * n\n       "
        " return self.total"
    ),
}
SAMPLERS = {
    "numpy": "def sample(choose, probs): return choose(list(np.array(probs) / np.sum(probs)))",
    "a tuple": "def sample(choose, probs): return choose(tuple(p / sum(probs) for p in probs))",
    "a token of numpy": (
        "def sample(choose, probs): return np.int64(choose([p / sum(probs) for p in probs]))"
    ),
    "a thread": (
        "from concurrent.futures import ThreadPoolExecutor\ndef sample(choose, probs):\n    with"
        " ThreadPoolExecutor() as pool: return pool.submit(choose, [p / sum(probs) for p in"
        " probs]).result()"
    ),
    "prints": (
        "def sample(choose, probs):\n    print(choose, probs)\n    return choose([p / sum(probs)"
        " for p in probs])"
    ),
}
SOFTMAXES = {
    "torch": "import torch\ndef softmax(x): return torch.softmax(torch.from_numpy(x), -1).numpy()",
    "torch, with its gradient": (
        "import torch\ndef softmax(x): return torch.softmax(torch.tensor(x, requires_grad=True),"
        " -1).detach().numpy()"
    ),
    "torch on two threads": (
        "import torch\ntorch.set_num_threads(2)\ndef softmax(x):\n    torch.ones(500, 500) @"
        " torch.ones(500, 500)\n    return torch.softmax(torch.from_numpy(x), -1).detach().numpy()"
    ),
    "loops": (
        "import math\ndef softmax(x):\n    rows = []\n    for r in x:\n        e = [math.exp(v) for"
        " v in r]\n        rows.append([v / sum(e) for v in e])\n    return np.array(rows)"
    ),
    "another order in memory": (
        "def softmax(x):\n    e = np.exp(np.asfortranarray(x)).T\n    return (e / e.sum(0)).T"
    ),
    "einsum": (
        "def softmax(x):\n    e = np.exp(x)\n    return np.einsum('ij,i->ij', e, 1 / e.sum(-1))"
    ),
    "a view": (
        "def softmax(x):\n    e = np.exp(x); out = np.empty((4, 6)); out[::2, ::2] = e / e.sum(-1,"
        " keepdims=True)\n    return out[::2, ::2]"
    ),
}
BESIDE = {
    "a missing module": "import a_module_that_is_not_here",
    "an error": "1 / 0",
    "magics": (
        "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n%config"
        " InlineBackend.figure_format = 'retina'\n%precision 3"
    ),
    "%timeit": "%timeit -n 2 -r 1 sum(range(10))",
    "displays": (
        "from IPython.display import HTML, Markdown, clear_output,"
        " display\ndisplay(HTML('<b>x</b>'), {'a': 1}); clear_output(); Markdown('# x')"
    ),
    "a plot": (
        "import matplotlib.pyplot as plt\nplt.style.use('ggplot'); f, a = plt.subplots();"
        " a.imshow(np.eye(3)); plt.show()"
    ),
    "widgets": "import ipywidgets as w\nw.interact(lambda x: x, x=3)",
    "warnings": "import warnings; warnings.filterwarnings('ignore'); np.array([1]) / 0",
    "options": (
        "np.set_printoptions(precision=2); import torch; torch.set_printoptions(precision=2);"
        " torch.manual_seed(3); np.random.seed(3)"
    ),
    "environment": (
        "import os; os.environ['OMP_NUM_THREADS'] = '8'; os.environ['CUDA_VISIBLE_DEVICES'] ="
        " ''\n%env TOKENIZERS_PARALLELISM=false"
    ),
    "a file of its own": "open('notes.txt', 'w').write('x')\nprint(open('notes.txt').read())",
    "a shell": "!ls -la\nfiles = !ls",
    "more imports": (
        "import collections, dataclasses, itertools, random, statistics, typing\nfrom math import"
        " *\nfrom twophase.lab import *"
    ),
    "the course's own": (
        "from twophase.theory.kv_cache import kv_bytes_per_token\nprint(kv_bytes_per_token)"
    ),
    "some time to set up": "import time; time.sleep(0.4)",
    "a long print": "for i in range(5_000): print(i)",
    "an await": "import asyncio\nawait asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))",
    "check()": "check('kv_cache-bytes')\nassert check('kv_cache-bytes') == 2",
    "source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f))\nf??",
    "help": "help(len)\n?print",
    "a question mark": "np.exp?",
    "a module that was found": "import scipy.special, pandas",
    "input": "name = input('Your name? ')",
}
INSTALLS = {
    "%pip": "%pip install -q pandas",
    "!pip": "!pip install -q pandas",
    "conda": "%conda install pandas",
}
EDITORS = {
    "VS Code": {
        "language_info": {"name": "python", "version": "3.12.1"},
        "vscode": {"interpreter": {"hash": "x"}},
    },
    "Colab": {
        "colab": {"provenance": [], "toc_visible": True, "gpuType": "T4"},
        "accelerator": "GPU",
        "kernelspec": {"name": "python3"},
    },
    "Kaggle": {
        "kaggle": {"accelerator": "none", "dataSources": [], "isInternetEnabled": True},
        "papermill": {"duration": 3.2},
    },
    "Deepnote": {
        "deepnote": {"is_reactive": False},
        "deepnote_notebook_id": "x",
        "orig_nbformat": 2,
    },
    "PyCharm": {
        "language_info": {"codemirror_mode": {"name": "ipython"}},
        "pycharm": {"is_executing": False},
    },
}
CELL_MARKS = {
    "VS Code": {"vscode": {"languageId": "python"}, "id": "a"},
    "Colab": {"id": "Xy_-1", "colab": {"base_uri": "https://localhost:8080/"}, "outputId": "1", "executionInfo": {"user": {}}},
    "Kaggle": {"_uuid": "x", "execution": {"iopub.status.busy": "2024"}, "trusted": True, "papermill": {"tags": []}},
    "Deepnote": {"cell_id": "x", "deepnote_cell_type": "code", "source_hash": "y", "execution_millis": 3},
    "PyCharm": {"pycharm": {"name": "#%%\n"}, "ExecuteTime": {"end_time": "2024"}, "jupyter": {"outputs_hidden": True}},
}  # fmt: skip


def _saved_by(editor: str) -> Hostile:
    made = [{**c, "metadata": c["metadata"] | CELL_MARKS[editor]} for c in cells(dict(RIGHT))]
    tree = {"nbformat": 4, "nbformat_minor": 0, "metadata": EDITORS[editor], "cells": made}
    return Hostile(
        f"honest: saved by {editor}",
        json.dumps(tree, indent=2, ensure_ascii=False).encode(),
        frozenset(),
    )


HONEST = [
    *(keeps(name, source) for name, source in BYTES.items()),
    *(keeps(f"counter: {name}", source, "counter") for name, source in COUNTERS.items()),
    *(keeps(f"sampler: {name}", source, "sampler") for name, source in SAMPLERS.items()),
    *(keeps(f"softmax: {name}", source, "softmax") for name, source in SOFTMAXES.items()),
    *(keeps_beside(name, source) for name, source in BESIDE.items()),
    *(keeps_beside(name, source, needs="seccomp") for name, source in INSTALLS.items()),
    *(_saved_by(editor) for editor in EDITORS),
]
