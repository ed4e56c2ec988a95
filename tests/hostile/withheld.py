"""Answers that call for the library function which is the answer."""

from __future__ import annotations

from hostile.attack import Hostile, in_answer_cell, instead

MODULE = "twophase.kernels.online_softmax"
FOUND = "[f for f in gc.get_objects() if type(f).__name__ == 'function' and f.__name__ == 'online_softmax'][0]"


def _softmax(name: str, source: str, flag: str = "uses_withheld") -> Hostile:
    return instead(f"withheld: {name}", "softmax", source, flag)


WITHHELD = [
    _softmax("by its name", f"from {MODULE} import online_softmax\ndef softmax(x): return online_softmax(x)"),
    _softmax("as the answer", f"from {MODULE} import online_softmax as softmax"),
    _softmax("loaded again", f"import importlib, {MODULE} as m\ndef softmax(x): return importlib.reload(m).online_softmax(x)"),
    _softmax(
        "loaded again without the finder",
        f"import sys, importlib, {MODULE} as m\ndel sys.meta_path[0]\ndef softmax(x): return importlib.reload(m).online_softmax(x)",
        flag="",
    ),
    _softmax("found in memory", f"import gc\ngc.unfreeze()\ndef softmax(x): return {FOUND}(x)", flag=""),  # nothing is left to find
    _softmax("by its code", f"import gc, types, {MODULE} as m\ndef softmax(x): return types.FunctionType(m.online_softmax.__code__, vars(m), closure=m.online_softmax.__closure__)(x)"),
    _softmax("by what it wraps", f"import inspect, {MODULE} as m\ndef softmax(x): return inspect.unwrap(m.online_softmax)(x)"),
    _softmax("by its closure", f"import {MODULE} as m\ndef softmax(x): return m.online_softmax.__closure__[0].cell_contents(x)", flag=""),
    _softmax("by its source", f"import inspect, {MODULE} as m\ndef softmax(x): exec(inspect.getsource(m), globals()); return online_softmax(x)", flag=""),
    _softmax(
        "by its bytecode",
        "import importlib.util, marshal, twophase.kernels as k\n"
        "path = importlib.util.cache_from_source(k.__path__[0] + '/online_softmax.py')\n"
        "def softmax(x): exec(marshal.loads(open(path, 'rb').read()[16:]), g := {'__name__': 'x'}); return g['online_softmax'](x)",
        flag="",
    ),
    _softmax("caught and tried again", f"from {MODULE} import online_softmax\ndef softmax(x):\n    try: return online_softmax(x)\n    except ImportError: return online_softmax(x)"),
    in_answer_cell("imports the checks", "from twophase.checks.kv_cache import max_batch", True, "names_grader"),
]  # fmt: skip
