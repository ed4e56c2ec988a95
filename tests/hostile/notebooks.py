"""Submissions that attack the grader, or are broken. Each says which answers it must lose; every other must keep its points.

Where an attack is followed by the right answer, the answer counts unless the attack stops its own cell or spoils its own process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hostile.course import RIGHT, STUBS, TOPIC, answer_cell, cell, cells, check_cell, dump, setup_cell


@dataclass(frozen=True)
class Hostile:
    """A notebook, the answers that it loses, and a flag that it must raise, if any."""

    name: str
    data: bytes
    lost: frozenset[str]
    flag: str = ""


def _in_answer_cell(name: str, attack: str, loses: bool, flag: str = "") -> Hostile:
    """The attack in the first answer's cell, before the right answer."""
    answers = RIGHT | {"bytes": f"{attack}\n{RIGHT['bytes']}"}
    return Hostile(f"cell: {name}", dump(cells(answers)), frozenset({"bytes"} if loses else ()), flag)


def _in_own_cell(name: str, attack: str, flag: str = "", loses: str = "") -> Hostile:
    """The attack in a cell of the submission's own, before all answers: no answer may suffer."""
    made = cells(dict(RIGHT))
    made.insert(1, cell(attack))
    return Hostile(f"own cell: {name}", dump(made), frozenset(loses.split()), flag)


def _as_answer(name: str, body: str, flag: str = "") -> Hostile:
    """The attack in the body of the first answer, when it is called."""
    source = "def bytes_of(n_tokens, width):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    return Hostile(f"answer: {name}", dump(cells(RIGHT | {"bytes": source})), frozenset({"bytes"}), flag)


LOOP = "while True: pass"
STUBBORN = """import signal
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(s, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass"""
SEGFAULT = "import ctypes; ctypes.string_at(0)"
FORGE = """import os, struct, json
head = json.dumps(100).encode()
body = struct.pack('>I', len(head)) + head
for fd in range(3, 1024):
    for kind in (b'V', b'r', b'E'):
        try: os.write(fd, struct.pack('>IcQ', len(body), kind, 7) + body)
        except OSError: pass"""
JUNK = "import os\nfor fd in range(3, 1024):\n    try: os.write(fd, os.urandom(4096))\n    except OSError: pass"
CLOSE = "import os; os.closerange(3, 4096)"
PATCH_PROTOCOL = """import json, struct, twophase.protocol as p, twophase.protocol.codec as c, twophase.protocol.wire as w
json.dumps = json.loads = struct.pack = lambda *a, **k: 'full marks'
p.encode = p.decode = c.encode = c.decode = w.encode = lambda *a, **k: b'full marks'"""
PATCH_WORKER = """import gc
worker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]
type(worker)._invoke = lambda *a: (b'V', b'full marks')"""
ORPHANS = """import os, threading
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: threading.Event().wait()
    os._exit(0)"""
EQUAL = (
    "class Equal(int):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = int.__hash__\n"
)
WITHHELD = "twophase.kernels.online_softmax"

IN_A_CELL = [
    _in_answer_cell("endless loop", LOOP, True),
    _in_own_cell("endless loop", LOOP, "cell_broke"),
    _in_own_cell("loop that ignores signals", STUBBORN, "cell_broke"),
    _in_answer_cell("sys.exit", "import sys; sys.exit(0)", True),
    _in_own_cell("exit()", "exit()"),
    _in_answer_cell("os._exit", "import os; os._exit(0)", True),
    _in_own_cell("os._exit", "import os; os._exit(0)", "cell_broke"),
    _in_own_cell("segfault", SEGFAULT, "cell_broke"),
    _in_own_cell("abort", "import os; os.abort()", "cell_broke"),
    _in_own_cell("stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "cell_broke"),
    _in_own_cell("kills its parent", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"),
    _in_own_cell("eats memory", "hoard = []\nwhile True: hoard.append(bytearray(10**8))"),
    _in_own_cell("leaves orphans", ORPHANS),
    _in_own_cell("forks and goes on", "import os; os.fork()"),
    _in_own_cell("closes descriptors", CLOSE, "cell_broke"),
    _in_own_cell("forges frames", FORGE, "cell_broke"),
    _in_own_cell("writes junk everywhere", JUNK, "cell_broke"),
    _in_answer_cell("forges frames", FORGE, True),
    _in_own_cell("patches the protocol", PATCH_PROTOCOL),
    _in_own_cell("patches the worker", PATCH_WORKER, "right_alone"),
    _in_own_cell("patches isinstance", "import builtins; builtins.isinstance = lambda *a: True", "cell_broke"),
    _in_own_cell("patches sum", "import builtins; builtins.sum = lambda *a: 3", "right_alone"),
    _in_own_cell("patches numpy", "np.exp = lambda x: 0 * x", "right_alone"),
    _in_own_cell("empties the namespace", "%reset -f", "right_alone"),
    _in_own_cell(
        "audit hook", "import sys\ndef hook(*a): raise RuntimeError('no')\nsys.addaudithook(hook)", "right_alone"
    ),
    _in_own_cell("trace function", "import sys\ndef trace(*a): raise RuntimeError('no')\nsys.settrace(trace)"),
    _in_own_cell(
        "timer that kills", "import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)\n" + LOOP, "cell_broke"
    ),
    _in_own_cell("atexit", "import atexit, threading; atexit.register(threading.Event().wait)"),
    _in_own_cell(
        "threads that go on",
        "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()",
    ),
    _in_own_cell(
        "shadows torch", "open('torch.py', 'w').write('raise SystemExit')\nimport sys; sys.path.insert(0, '')"
    ),
    _in_own_cell("leaves its folder", "import os, shutil; shutil.rmtree(os.getcwd()); os.chdir('/')"),
    _in_own_cell("output flood", "print('x' * 30_000_000)\nfor i in range(50_000): print('<script>alert(1)</script>')"),
    _in_own_cell("noise on stderr", "import sys, os; print('Traceback', file=sys.stderr); os.write(2, b'FAILED')"),
    _in_own_cell("prints a score", "print('{\"points\": 100}'); import os; os.write(1, b'8 of 8 points')"),
    _in_own_cell("asks for input", "input('password?')"),
    _in_own_cell("recursion", "import sys; sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()"),
    _in_own_cell("half a character", "x = '\ud800'"),
    _in_own_cell("magics and await", "%%time\nimport asyncio\nawait asyncio.sleep(0)"),
    _in_own_cell(
        "replaces check", "def check(*a): return 2\nimport twophase.lab as lab; lab.check = check", "defines_check"
    ),
    _in_answer_cell("imports the checks", "from twophase.checks.kv_cache import max_batch", True, "names_grader"),
]

AS_AN_ANSWER = [
    _as_answer("endless loop", LOOP),
    _as_answer("waits for ever", "import threading; threading.Event().wait()"),
    _as_answer("sys.exit", "import sys; sys.exit(0)"),
    _as_answer("os._exit", "import os; os._exit(0)"),
    _as_answer("segfault", SEGFAULT),
    _as_answer("eats memory", "return bytearray(10**11)"),
    _as_answer("recursion", "return bytes_of(n_tokens, width)"),
    _as_answer("forges frames", f"{FORGE}\nreturn 0"),
    _as_answer("closes descriptors", CLOSE),
    _as_answer("equal to everything", f"{EQUAL}return Equal(1)"),
    _as_answer("a subclass with the right value", f"{EQUAL}return Equal(2 * n_tokens * width)"),
    _as_answer("nan", "return float('nan')"),
    _as_answer("inf", "return float('inf')"),
    _as_answer("an enormous integer", "return 10 ** 5000"),
    _as_answer("a nest", "x = []\nfor _ in range(10**5): x = [x]\nreturn x"),
    _as_answer("a list of ten million", "return [0] * 10**7"),
    _as_answer("a function", "return bytes_of"),
    _as_answer("an exception that cannot be printed", "class E(Exception):\n    __str__ = lambda s: 1 / 0\nraise E"),
    _as_answer("a forged time-out", "class NotYet(Exception): pass\nraise NotYet('<script>')"),
    _as_answer(
        "searches memory", "import gc\nreturn [o for o in gc.get_objects() if type(o).__name__ == 'Exercise'][0].points"
    ),
    _as_answer("reads the stack", "import sys\nreturn sys._getframe(1).f_locals['expected']"),
]


def _softmax(name: str, source: str, flag: str = "uses_withheld") -> Hostile:
    return Hostile(f"withheld: {name}", dump(cells(RIGHT | {"softmax": source})), frozenset({"softmax"}), flag)


WITHHOLDING = [
    _softmax("by its name", f"from {WITHHELD} import online_softmax\ndef softmax(x): return online_softmax(x)"),
    _softmax("as the answer", f"from {WITHHELD} import online_softmax as softmax"),
    _softmax(
        "loaded again",
        f"import importlib, {WITHHELD} as m\ndef softmax(x): return importlib.reload(m).online_softmax(x)",
    ),
    _softmax(
        "loaded again without the finder",
        f"import sys, importlib, {WITHHELD} as m\ndel sys.meta_path[0]\n"
        "def softmax(x): return importlib.reload(m).online_softmax(x)",
        flag="",
    ),
    _softmax(
        "found in memory",
        "import gc\ngc.unfreeze()\ndef softmax(x):\n"
        "    found = [f for f in gc.get_objects() if type(f).__name__ == 'function' and f.__name__ == 'online_softmax']\n"
        "    return found[0](x)",
        flag="",  # there may be nothing left to find
    ),
]


def _cells_moved() -> list[Hostile]:
    right = cells(dict(RIGHT))
    stub, answer = answer_cell("bytes", STUBS["bytes"]), answer_cell("bytes", RIGHT["bytes"])
    without = [c for c in right if c["metadata"].get("nbgrader", {}).get("grade_id") != f"{TOPIC}-bytes"]
    unlocked = [setup_cell("raise SystemExit"), *right[1:]]
    forged = [c if not c["metadata"].get("nbgrader", {}).get("grade") else {**c, "source": "2"} for c in cells({})]
    everything = frozenset(RIGHT)
    lost = frozenset({"bytes"})
    return [
        Hostile("cells: a right one, then a stub with its id", dump([*right, stub]), lost, "duplicate_cell"),
        Hostile(
            "cells: a stub, then a right one with its id",
            dump([stub, *right[:1], answer, *without]),
            frozenset(),
            "duplicate_cell",
        ),
        Hostile("cells: an answer deleted", dump(without), lost, "missing_cell"),
        Hostile("cells: all in reverse", dump(right[::-1]), frozenset()),
        Hostile("cells: setup unlocked and changed", dump(unlocked), frozenset(), "locked_cell_changed"),
        Hostile("cells: setup deleted", dump(right[1:]), frozenset()),
        Hostile("cells: checks changed to points", dump(forged), everything, "check_cell_changed"),
        Hostile("cells: checks deleted", dump([c for c in right if c["source"][:5] != "check"]), frozenset()),
        Hostile("cells: untouched", dump(cells({})), everything),
        Hostile(
            "cells: answers twice as checks", dump([*right, check_cell("bytes"), check_cell("bytes")]), frozenset()
        ),
        Hostile("cells: junk among them", _with_junk(right), frozenset()),
    ]


def _with_junk(right: list[dict]) -> bytes:
    junk = [
        None,
        3,
        [],
        {},
        {"cell_type": 4},
        {"cell_type": "code", "source": {"a": 1}},
        {"cell_type": "code", "metadata": []},
    ]
    return json.dumps({"nbformat": "four", "metadata": None, "cells": [*junk, *right]}).encode()


def version_3() -> bytes:
    """The right answers in the format of 2013."""
    old = []
    for c in cells(dict(RIGHT)):
        code = {"input": c["source"], "outputs": [], "language": "python", "collapsed": False}
        rest = code if c["cell_type"] == "code" else {"source": c["source"]}
        old.append({"cell_type": c["cell_type"], "metadata": c["metadata"], **rest})
    return json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": old}]}).encode()


CORPUS = [
    *IN_A_CELL,
    *AS_AN_ANSWER,
    *WITHHOLDING,
    *_cells_moved(),
    Hostile("format: version 3", version_3(), frozenset()),
]

UNREADABLE = {
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"# my homework",
    "cut short": dump(cells({}))[:-40],
    "a number": b"7",
    "no cells": b'{"nbformat": 4}',
    "cells that are no list": b'{"cells": {"a": 1}}',
    "deep": b'{"cells":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "an enormous number": b'{"cells": ' + b"9" * 100_000 + b"}",
    "too large": dump([cell("#" * 9_000_000)]),
    "too many cells": dump([cell("1")] * 2_001),
    "binary": bytes(range(256)) * 100,
}
