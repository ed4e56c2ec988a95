"""Answers that are no answers: values equal to everything, values that change, values that pretend; exceptions that pretend."""

from __future__ import annotations

import random

from hostile.attack import Hostile, as_answer, instead
from hostile.course import EXERCISES, TOPIC, bytes_of

EQUAL = (
    "__eq__ = __le__ = __ge__ = lambda s, o: True\n    __ne__ = __lt__ = __gt__ = lambda s, o:"
    " False\n    __hash__ = None\n"
)
SPECIAL = (
    "__array__ = __float__ = __index__ = __int__ = __bool__ = __abs__ = __sub__ = __rsub__ ="
    " __round__ = lambda s, *a, **k: 1\n    item = tolist = lambda s: 1\n    shape, dtype, size,"
    " ndim = (), 'int64', 1, 0\n    __torch_function__ = __array_ufunc__ = __array_function__ ="
    " classmethod(lambda c, *a, **k: True)\n"
)


def _equal(name: str, base: str, made: str, before: str = "") -> Hostile:
    return as_answer(
        f"equal to everything: {name}",
        f"return {made}",
        before=f"{before}\nclass Equal({base}):\n    {EQUAL}",
    )


def _pretends(name: str, declared: str) -> Hostile:
    return as_answer(
        f"pretends to be {name}", "return Equal()", before=f"{declared}\n    {EQUAL}    {SPECIAL}"
    )


VALUES = {
    "nan": "return float('nan')",
    "inf": "return float('inf')",
    "minus inf": "return -float('inf')",
    "numpy's nan": "return np.float64('nan')",
    "a tensor of nan": "import torch; return torch.tensor(float('nan'))",
    "True": "return True",
    "None": "return None",
    "nothing": "pass",
    "an ellipsis": "return ...",
    "the text of the number": "return str(2 * n_tokens * width)",
    "the bytes of the number": "return (2 * n_tokens * width).to_bytes(8, 'little')",
    "a list of the number": "return [2 * n_tokens * width]",
    "an array of the number": "return np.array([2 * n_tokens * width])",
    "all numbers": "return list(range(20_000))",
    "a set of all numbers": "return set(range(20_000))",
    "a dict that has all keys": (
        "import collections; return collections.defaultdict(lambda: 2 * n_tokens * width)"
    ),
    "a float, which is no whole number": "return 2.0 * n_tokens * width",
    "a tensor of floats with its gradient": (
        "import torch; return torch.tensor(2.0 * n_tokens * width, dtype=torch.float64,"
        " requires_grad=True) * 1"
    ),
    "a complex number": "return 2 * n_tokens * width + 0j",
    "a fraction": "import fractions; return fractions.Fraction(2 * n_tokens * width)",
    "a decimal": "import decimal; return decimal.Decimal(2 * n_tokens * width)",
    "a member of an enumeration": (
        "import enum; return enum.IntEnum('E', {'x': 2 * n_tokens * width}).x"
    ),
    "an enormous integer": "return 10 ** 5000",
    "an enormous integer within limits": "return 10 ** 1200",
    "an enormous text": "return 'x' * 10**7",
    "an enormous array": "return np.zeros((9000, 9000), 'u1')",
    "an array without end": "return np.broadcast_to(np.zeros(1), (10**9, 10**6))",
    "an array with many axes": "return np.zeros((0,) * 60)",
    "an array of objects": "return np.array([object()])",
    "a tensor of another whole kind": "import torch; return torch.tensor([2], dtype=torch.uint16)",
    "a tensor without values": "import torch; return torch.empty(1, device='meta')",
    "a tensor whose memory is gone": (
        "import torch; t = torch.ones(9); t.untyped_storage().resize_(0); return t"
    ),
    "a nest": "x = []\nfor _ in range(10**5): x = [x]\nreturn x",
    "a list that holds itself": "x = []; x.append(x); return x",
    "a list of a million": "return [0] * 10**6",
    "keys that collide": "return {(i, i): 0 for i in range(10**5)}",
    "a function": "return bytes_of",
    "a function in a list": "return [bytes_of]",
    "a class": "return int",
    "a module": "return np",
    "a generator": "return (x for x in [2 * n_tokens * width])",
    "a generator function": "yield 2 * n_tokens * width",
    "a coroutine": "import asyncio\nasync def f(): return 2\nreturn f()",
    "a future": (
        "import concurrent.futures as c\nf = c.Future(); f.set_result(2 * n_tokens * width);"
        " return f"
    ),
    "a view of a dict": "return {2 * n_tokens * width: 0}.keys()",
    "a memoryview": "return memoryview(bytes(9))",
    "a frame": "import sys; return sys._getframe()",
    "a file": "return open('/dev/null')",
    "half a character": "return '\\ud800'",
    "a page": "return '</pre><script>alert(5)</script>'",
    "a pickle": "import pickle; return pickle.dumps(2 * n_tokens * width)",
    "what pickles to the right number": (
        "class P:\n    def __reduce__(self): return int, (2 * n_tokens * width,)\nreturn P()"
    ),
    "an int with other digits": (
        "class I(int):\n    __repr__ = __str__ = lambda s: '2'\nreturn I(2 * n_tokens * width)"
    ),
    "a float that is near all": (
        "class F(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\nreturn F(1)"
    ),
}
RAISED = {
    "AnswerError(timeout)": (
        "from twophase.protocol import AnswerError; raise AnswerError('timeout', 'the grader was"
        " slow')"
    ),
    "AnswerError(died)": (
        "from twophase.protocol import AnswerError; raise AnswerError('died', 'the grader died')"
    ),
    "AnswerError(internal)": (
        "from twophase.protocol import AnswerError; raise AnswerError('internal', 'the grader"
        " failed')"
    ),
    "AnswerError(raised)": (
        "from twophase.protocol import AnswerError; raise AnswerError('raised', 'x',"
        " ('ValueError',))"
    ),
    "an AnswerError of another shape": (
        "from twophase.protocol import AnswerError; raise AnswerError(3, None, 4)"
    ),
    "NotYet": "raise NotYet('<script>alert(6)</script>')",
    "a NotYet of its own": "class NotYet(Exception): pass\nraise NotYet",
    "Withheld": "from twophase.protocol import Withheld; raise Withheld('x')",
    "ProtocolError": "from twophase.protocol import ProtocolError; raise ProtocolError('x')",
    "JudgeFault": (
        "from twophase.protocol.errors import JudgeFault; raise JudgeFault('the grader failed')"
    ),
    "GraderFault": "class GraderFault(Exception): pass\nraise GraderFault('the grader failed')",
    "Closed": "from twophase.protocol.wire import Closed; raise Closed",
    "TimeoutError": "raise TimeoutError",
    "StopIteration": "raise StopIteration(2 * n_tokens * width)",
    "a class of too many parents": (
        "E = Exception\nfor i in range(300): E = type('E' * 300, (E,), {})\nraise E('x' * 10**6)"
    ),
    "an exception that is a number": (
        "class E(Exception, metaclass=type('M', (type,), {'__eq__': lambda *a: True, '__hash__':"
        " None})): pass\nraise E(2)"
    ),
    "an exception with a cause without end": "e = Exception(); e.__cause__ = e; raise e",
}
COUNTERS = {
    "everything is there": (
        "class Counter:\n    def __init__(self, *a): pass\n    def __getattr__(self, name): return"
        " lambda *a: 3"
    ),
    "equal to everything": (
        "class Counter:\n    def __init__(self, *a): self.total = self\n    def add(self, n):"
        f" return self\n    {EQUAL}"
    ),
    "an attribute that raises": (
        "class Counter:\n    def __init__(self, *a): pass\n    def add(self, n): return n\n   "
        " total = property(lambda s: 1 / 0)"
    ),
    "an attribute of the judge's": (
        "class Counter:\n    def __init__(self, *a): pass\n    def add(self, n): return n\n   "
        " @property\n    def total(self):\n        from twophase.protocol import AnswerError\n     "
        "   raise AnswerError('died', 'x')"
    ),
    "a constructor that raises the judge's": (
        "class Counter:\n    def __init__(self, *a):\n        from twophase.protocol import"
        " ProtocolError\n        raise ProtocolError('x')"
    ),
    "a method that raises the judge's": (
        "class Counter:\n    total = 0\n    def __init__(self, *a): pass\n    def add(self, n):\n  "
        "      from twophase.protocol.errors import JudgeFault\n        raise JudgeFault('x')"
    ),
    "a look-up that raises the judge's": (
        "class Counter:\n    def __init__(self, *a): pass\n    def __getattribute__(self, name):\n "
        "       from twophase.protocol import AnswerError\n        raise AnswerError('timeout',"
        " 'x')"
    ),
    "a constructor that returns a number": "def Counter(start): return 3",
    "a constructor that returns a reference": (
        "from twophase.protocol import ObjectRef\ndef Counter(start): return ObjectRef(99)"
    ),
    "a class of classes": (
        "class Counter(type):\n    def __new__(c, *a): return super().__new__(c, 'x', (), {'add':"
        " 1, 'total': 2})\n    def __init__(c, *a): pass"
    ),
    "refuses everything": (
        "class Counter:\n    total = 0\n    def __init__(self, *a): pass\n    def add(self, n):"
        " raise ValueError"
    ),
    "refuses nothing": (
        "class Counter:\n    def __init__(self, start): self.total = start\n    def add(self, n):\n"
        "        self.total += n\n        return self.total"
    ),
    "raises another error": (
        "class Counter:\n    def __init__(self, start): self.total = start\n    def add(self, n):\n"
        "        if n < 0: raise type('NotValueError', (Exception,), {})\n        self.total += n\n"
        "        return self.total"
    ),
}
SOFTMAXES = {
    "an ndarray of its own": "class A(np.ndarray):\n    __sub__ = lambda s, o: 0 * o\ndef softmax(x): return np.ones(x.shape).view(A)",
    "a masked array": "def softmax(x): return np.ma.masked_all(x.shape)",
    "a matrix": "def softmax(x): return np.matrix(x)",
    "a tensor of its own": "import torch\nclass T(torch.Tensor): pass\ndef softmax(x): return torch.ones(2, 3).as_subclass(T)",
    "a tensor instead of an array": "import torch\ndef softmax(x): return torch.softmax(torch.tensor(x), -1)",
    "nan": "def softmax(x): return x * np.nan",
    "inf": "def softmax(x): return x + np.inf",
    "an empty array": "def softmax(x): return x[:0]",
    "another shape": "def softmax(x):\n    e = np.exp(x)\n    return (e / e.sum(-1, keepdims=True)).reshape(3, 2)",
    "one number for all": "def softmax(x): return np.broadcast_to(1 / 3, x.shape)",
    "too few digits": "def softmax(x):\n    e = np.exp(x)\n    return (e / e.sum(-1, keepdims=True)).astype('f2')",
    "its argument": "def softmax(x): return x",
    "its argument, changed": "def softmax(x):\n    x -= x.max(-1, keepdims=True)\n    np.exp(x, out=x)\n    x /= x.sum(-1, keepdims=True)\n    return x",
    "an array that lies about its type": "class ndarray(np.ndarray): pass\nndarray.__module__ = 'numpy'\ndef softmax(x): return np.ones(x.shape).view(ndarray)",
}  # fmt: skip


def _public_constants() -> Hostile:
    """Right on the cases that the notebook shows, and on nothing else."""
    seen = {
        c.args: bytes_of(*c.args)
        for c in EXERCISES[f"{TOPIC}-bytes"].cases(random.Random(f"1/{TOPIC}-bytes"))
        if c.public
    }
    return as_answer("constants of the public cases", f"return {seen}.get((n_tokens, width), 0)")


ANSWERS = [
    _equal("an int", "int", "Equal(1)"),
    _equal("a float", "float", "Equal(1)"),
    _equal("a text", "str", "Equal('1')"),
    _equal("a list", "list", "Equal([1])"),
    _equal("a dict", "dict", "Equal()"),
    _equal("bytes", "bytes", "Equal()"),
    _equal("a tuple", "tuple", "Equal()"),
    _equal("an array", "np.ndarray", "np.ones(()).view(Equal)"),
    _equal("a numpy number", "np.float64", "Equal(1)"),
    _equal("a tensor", "torch.Tensor", "torch.ones(()).as_subclass(Equal)", "import torch"),
    _equal("an int in a list", "int", "[Equal(1)]"),
    _equal("an int as a key", "int", "{Equal(1): Equal(1)}"),
    _equal("the right number", "float", "Equal(2 * n_tokens * width)"),
    _pretends("any number", "class Equal:"),
    _pretends("an int", "class Equal:\n    __class__ = int"),
    _pretends("numpy's", "class Equal:\n    __module__ = 'numpy'\n    __class__ = np.ndarray"),
    _pretends("a number, by its metaclass", "class M(type):\n    __instancecheck__ = __subclasscheck__ = __eq__ = lambda *a: True\n    __hash__ = type.__hash__\nclass Equal(metaclass=M):"),
    *(as_answer(f"returns {name}", body) for name, body in VALUES.items()),
    *(as_answer(f"raises {name}", body) for name, body in RAISED.items()),
    *(instead(f"counter: {name}", "counter", source) for name, source in COUNTERS.items()),
    *(instead(f"softmax: {name}", "softmax", source) for name, source in SOFTMAXES.items()),
    instead("sampler: its argument, changed", "sampler", "def sample(choose, probs):\n    s = sum(probs)\n    for i in range(len(probs)): probs[i] /= s\n    return choose(probs)"),
    _public_constants(),
    as_answer("right the first time only", "calls.append(1); return 2 * n_tokens * width if len(calls) < 2 else 0", before="calls = []"),
    as_answer("right until a time", "return 2 * n_tokens * width if time.monotonic() < start + 0.0005 else 0", before="import time; start = time.monotonic()"),
    as_answer("right for small numbers", "return 2 * n_tokens * width if n_tokens < 2 else 0"),
    as_answer("right outside the worker", "import os; return 2 * n_tokens * width if not os.environ.get('TWOPHASE_WORKER') else 0"),
    as_answer("its frame's locals", "import sys; return sys._getframe(1).f_locals['expected']"),
    instead("a name that is no function", "bytes", "bytes_of = 3"),
    instead("another name", "bytes", "def Bytes_of(n, w): return 2 * n * w"),
    instead("a function of too few arguments", "bytes", "def bytes_of(n): return 2 * n"),
]  # fmt: skip
