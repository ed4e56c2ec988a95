"""Cells and answers that die, hang, or use up what there is."""

from __future__ import annotations

from hostile.attack import as_answer, in_answer_cell, in_own_cell, instead

LOOP = "while True: pass"
STUBBORN = """import signal
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(s, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass"""
SEGFAULT = "import ctypes; ctypes.string_at(0)"
CLOSE = "import os; os.closerange(3, 4096)"
STEAL = """import os, stat, threading
end = [fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}') and stat.S_ISSOCK(os.fstat(fd).st_mode)][0]
def steal():
    while os.read(end, 2**16): pass
threading.Thread(target=steal, daemon=True).start()
import time; time.sleep(0.1)"""

ENDS = {  # how to end a process, or try to
    "sys.exit": "import sys; sys.exit(0)",
    "os._exit": "import os; os._exit(0)",
    "os._exit with success": "import os; os._exit(7)",
    "segfault": SEGFAULT,
    "segfault of faulthandler": "import faulthandler; faulthandler._sigsegv()",
    "stack overflow in C": "import itertools\nx = iter(())\nfor _ in range(10**6): x = itertools.chain(x, ())\nlist(x)",
    "abort": "import os; os.abort()",
    "fatal error": "import ctypes; ctypes.pythonapi.Py_FatalError(b'the grader failed')",
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "ends itself politely": "import signal; signal.raise_signal(signal.SIGTERM)",
    "kills its group": "import os; os.killpg(0, 9)",
    "runs out of processor time": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nfor _ in range(10**8): pass",
    "execs another program": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', ''])",
    "closes descriptors": CLOSE,
    "breaks the interpreter": "import ctypes; ctypes.memset(id(tuple), 255, 64)",
}
RAISES = {  # exceptions that are more than errors
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "MemoryError": "raise MemoryError",
    "a SystemExit of its own": "class Quit(SystemExit): code = 'full marks'\nraise Quit",
    "a BaseException of its own": "class Base(BaseException): pass\nraise Base('x')",
    "a group of exits": "raise BaseExceptionGroup('all', [SystemExit(0), KeyboardInterrupt()])",
    "CancelledError": "import asyncio\nraise asyncio.CancelledError",
    "an exception whose message exits": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
    "an exception of megabytes": "raise ValueError('<b>' * 10**7)",
    "an exception without a name": "class M(type): __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): pass\nraise E",
    "a warning turned into an error": "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('x')",
}
SURVIVED = {  # what ends nothing, or only its own cell
    "exit()": "exit()",
    "exit in a finalizer": "import sys\nclass X:\n    def __del__(self): sys.exit(1)\nX()",
    "exit in a representation": "import sys\nclass X:\n    def __repr__(self): sys.exit(1)\nX()",
    "exit in a thread": "import sys, threading\nthreading.Thread(target=sys.exit).start()",
    "error in a finalizer of a cycle": "class X:\n    def __del__(self): raise SystemExit\nx = X(); x.me = x; del x\nimport gc; gc.collect()",
    "recursion": "import sys; sys.setrecursionlimit(10**4)\ndef f(): return f()\nf()",
    "half a character": "x = '\ud800'",
    "characters that end a text": "print('\\0' * 100, '\\x1b[2J', '\\u202e', '\\ud800')\nraise ValueError('\\0\\x1b]0;x\\x07\\u202e\\ud800')",
    "a syntax error": "def f(:",
    "a million brackets": "exec('(' * 10**6)",
    "a null in the source": "x = '\0'",
}
HOARDS = {  # what runs out
    "memory": "hoard = []\nwhile True: hoard.append(bytearray(10**8))",
    "memory in small pieces": "hoard = [0]\nwhile True: hoard = [hoard] * 3 + hoard",
    "address space": "import mmap\nhoard = []\nwhile True: hoard.append(mmap.mmap(-1, 2**30))",
    "one enormous number": "x = 1 << 10**12",
    "one enormous array": "x = np.ones(10**12)",
    "one enormous tensor": "import torch; x = torch.ones(10**12)",
    "shared memory": "from multiprocessing import shared_memory\nx = shared_memory.SharedMemory('left-behind-by-a-submission', True, 10**9)",
    "memory by memfd": "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, bytes(10**6))",
    "memory by shmget": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(4): ctypes.memset(libc.shmat(libc.shmget(0, 10**7, 0o1777), None, 0), 1, 10**7)"
    ),
    "descriptors": "import os\nhoard = []\nwhile True: hoard.append(os.open('/dev/null', 0))",
    "pipes": "import os\nhoard = []\nwhile True: hoard.append(os.pipe())",
    "threads": "import threading\nwhile True: threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "the disk, in one file": "with open('big', 'wb') as f:\n    while True: f.write(bytes(10**6))",
    "the disk, in many files": "import os\nfor i in range(99): open(f'{i}', 'wb').write(bytes(2**20))",
    "the disk, in many folders": "import os\nfor i in range(2_000): os.mkdir(f'd{i}')",
    "output": "print('x' * 30_000_000)\nfor i in range(50_000): print('<script>alert(1)</script>')",
    "output that lies about its length": "class S(str):\n    __len__ = lambda s: -10**9\n    __getitem__ = lambda s, k: s\nimport sys; sys.stdout.write(S('x' * 10**6))",
    "output of something else": "import sys; sys.stdout.write(b'x'); sys.stdout.write(None)",
    "output beside output": "import os\nfor _ in range(300): os.write(1, bytes(10**6)); os.write(2, bytes(10**6))",
    "displays": "for i in range(2_000): display('<b>' * 1_000)",
}
GOES_ON = {  # what goes on after its cell
    "threads": "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()",
    "atexit": "import atexit, threading; atexit.register(threading.Event().wait)",
    "a finalizer": "import weakref, threading\nclass X: pass\nx = X(); weakref.finalize(x, threading.Event().wait)",
    "a slow handler of signals": "import signal, threading\nsignal.signal(signal.SIGTERM, lambda *a: threading.Event().wait())",
    "a task of asyncio": "import asyncio\nasync def spin():\n    while True: await asyncio.sleep(0)\nt = asyncio.ensure_future(spin())",
    "a late writer": "import threading, sys\ndef late():\n    while True: sys.stdout.write('x' * 10**5)\nthreading.Thread(target=late, daemon=True).start()",
    "a late exit": "import threading, os; threading.Timer(0.02, os._exit, (0,)).start()",
    "a late alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 0.02)",
    "a late alarm that raises": (
        "import signal\ndef ring(*a): raise SystemExit\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)"
    ),
    "a profiler's alarm": "import signal; signal.setitimer(signal.ITIMER_PROF, 0.01)",
    "an exit in another answer": "import sys\ndef trace(f, e, a):\n    if f.f_code.co_name == 'softmax': import os; os._exit(0)\nsys.settrace(trace)",
}

BREAKING = [
    *(in_own_cell(name, source, "" if "exec" in name or "sys" in name or "group" in name else "cell_broke")
      for name, source in ENDS.items() if name not in ("closes descriptors",)),
    *(in_answer_cell(name, source, True) for name, source in ENDS.items() if "exec" not in name and "stack" not in name),
    *(as_answer(name, source) for name, source in ENDS.items() if "stack" not in name),
    *(in_own_cell(name, source) for name, source in RAISES.items()),
    *(in_answer_cell(name, source, True) for name, source in RAISES.items()),
    *(as_answer(name, source) for name, source in RAISES.items()),
    *(in_own_cell(name, source) for name, source in SURVIVED.items()),
    *(in_own_cell(f"hoards {name}", source) for name, source in HOARDS.items()),
    *(in_own_cell(f"goes on: {name}", source) for name, source in GOES_ON.items()),
    in_own_cell("closes descriptors", CLOSE, "cell_broke"),
    in_own_cell("timer that kills", "import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)\n" + LOOP, "cell_broke"),
    instead("a constructor that dies", "counter", f"class Counter:\n    def __init__(self, start=0): {SEGFAULT}"),
    instead("a method that dies", "counter", "class Counter:\n    total = 0\n    def __init__(self, start=0): pass\n    def add(self, n): __import__('os')._exit(0)"),
    instead("an attribute that dies", "counter", "class Counter:\n    def __getattr__(self, name): __import__('os')._exit(0)"),
    instead("a finalizer that dies", "counter", "class Counter:\n    def __init__(self, start=0): self.total = start\n    def add(self, n): return self\n    def __del__(self): __import__('os')._exit(0)"),
    as_answer("recursion", "return bytes_of(n_tokens, width)"),
    as_answer("eats memory", "return bytearray(10**11)"),
]  # fmt: skip

SLOW = [
    as_answer("recursion without a limit", "import sys; sys.setrecursionlimit(10**9)\nreturn bytes_of(n_tokens, width)"),
    # these hold a process until its time is up: a second or two each
    in_own_cell("endless loop", LOOP, "cell_broke"),
    in_own_cell("loop that ignores signals", STUBBORN, "cell_broke"),
    in_own_cell("stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "cell_broke"),
    in_answer_cell("endless loop", LOOP, True),
    in_own_cell("steals what the judge says", STEAL),
    in_own_cell("endless output", "while True: print('x' * 10**5)"),
    as_answer("endless loop", LOOP),
    as_answer("sleeps", "import time; time.sleep(10**6); return 2 * n_tokens * width"),
    as_answer("loop that ignores signals", STUBBORN),
    instead("a representation that never ends", "bytes", "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef bytes_of(n, w): raise E"),
]  # fmt: skip
