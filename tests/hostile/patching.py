"""Cells that change the tools which a judge might use, or what comes after them. No answer of another cell may suffer."""

from __future__ import annotations

from hostile.attack import in_answer_cell, in_own_cell

ALONE = "right_alone"
TRUE = "lambda *a, **k: True"
WORKER = "import gc\nworker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]\n"

TEST_LIBRARIES = {  # what makes an assertion true where it runs
    "asserts stripped": (
        "import ast\nclass Strip(ast.NodeTransformer):\n    def visit_Assert(self, node): return"
        " ast.Pass()\nget_ipython().ast_transformers.append(Strip())"
    ),
    "numpy.testing": f"import numpy.testing as t\nfor n in dir(t): setattr(t, n, {TRUE})",
    "np.allclose and its like": (
        f"for n in ('allclose', 'isclose', 'array_equal', 'array_equiv'): setattr(np, n, {TRUE})"
    ),
    "torch.testing": (
        f"import torch\ntorch.testing.assert_close = torch.allclose = torch.equal = {TRUE}"
    ),
    "unittest": (
        "import unittest\nfor n in dir(unittest.TestCase):\n    if n[:6] == 'assert':"
        f" setattr(unittest.TestCase, n, {TRUE})"
    ),
    "pytest": f"import pytest\npytest.approx = pytest.raises = pytest.fail = {TRUE}",
    "math.isclose": f"import math, operator\nmath.isclose = math.isfinite = operator.eq = {TRUE}",
    "check": "def check(*a): return 2\nimport twophase.lab as lab; lab.check = check",
    "IN_WORKER": (
        "import os, twophase.lab as lab\nlab.IN_WORKER = False; os.environ.pop('TWOPHASE_WORKER',"
        " 0)\ncheck('kv_cache-bytes')"
    ),
}
BUILTINS = {  # name: whether answers suffer from it, so that each is judged by itself
    "isinstance": ("import builtins; builtins.isinstance = lambda *a: True", ""),
    "sum": ("import builtins; builtins.sum = lambda *a: 3", ALONE),
    "sum, to look like a misconception": ("import builtins; builtins.sum = lambda *a: 1", ALONE),
    "len": ("import builtins; builtins.len = lambda x: 0", ""),
    "type": ("import builtins; builtins.type = lambda x: int", ""),
    "callable": ("import builtins; builtins.callable = lambda x: False", ""),
    "getattr": ("import builtins; builtins.getattr = lambda *a: None", ""),
    "float": ("import builtins; builtins.float = builtins.int = str", ""),
    "ValueError": ("import builtins; builtins.ValueError = KeyError", ALONE),
    "__import__": (
        "import builtins\ndef no(*a, **k): raise SystemExit\nbuiltins.__import__ = no",
        "",
    ),
    "__build_class__": ("import builtins; builtins.__build_class__ = lambda *a: None", ALONE),
    "all of them": ("import builtins; vars(builtins).clear()", ""),
    "all of them to one": (
        (
            "import builtins\nfor n in list(vars(builtins)):\n    if n[0] != '_': setattr(builtins,"
            " n, print)"
        ),
        "",
    ),
}
LIBRARIES = {
    "numpy": ("np.exp = lambda x: 0 * x", ALONE),
    "numpy, to look like a stub": (
        "def stub(*a): raise NotYet('kv_cache-softmax')\nnp.exp = stub",
        ALONE,
    ),
    "numpy.random": ("np.random.seed = np.random.default_rng = None", ""),
    "numpy's ndarray": ("class Equal: pass\nnp.ndarray = np.generic = Equal", ALONE),
    "sys.modules['numpy']": ("import sys; sys.modules['numpy'] = type(sys)('numpy')", ALONE),
    "sys.modules['torch']": ("import sys; sys.modules['torch'] = 3", ""),
    "sys.modules": ("import sys; sys.modules.clear()", ""),
    "the protocol's modules": (
        "import sys\nfor n in list(sys.modules):\n    if 'twophase' in n: del sys.modules[n]",
        "",
    ),
    "shadows torch": (
        "open('torch.py', 'w').write('raise SystemExit')\nimport sys; sys.path.insert(0, '')",
        "",
    ),
    "sys.path": ("import sys; sys.path[:] = []; sys.meta_path[:] = []; sys.path_hooks[:] = []", ""),
    "a hook of imports": (
        (
            "import sys\nclass No:\n    def find_spec(s, *a): raise"
            " SystemExit\nsys.meta_path.insert(0, No())"
        ),
        "",
    ),
    "json and struct": (
        (
            "import json, struct, twophase.protocol as p, twophase.protocol.codec as c,"
            " twophase.protocol.wire as w\njson.dumps = json.loads = struct.pack = lambda *a, **k:"
            " 'full marks'\np.encode = p.decode = c.encode = c.decode = w.encode = lambda *a, **k:"
            " b'full marks'"
        ),
        "",
    ),
    "time": ("import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0", ""),
    "float16 by default": ("import torch\ntorch.set_default_dtype(torch.float16)", ""),
    "numpy's errors": (
        "np.seterr(all='raise')\nimport warnings; warnings.simplefilter('error')",
        "",
    ),
    "the recursion limit": ("import sys; sys.setrecursionlimit(60)", ""),
    "the switch interval": ("import sys; sys.setswitchinterval(10**5)", ""),
    "the garbage collector": (
        "import gc; gc.set_threshold(1); gc.callbacks.append(lambda *a: 1 / 0)",
        "",
    ),
    "the limits": (
        (
            "import resource as r\nfor n in (r.RLIMIT_AS, r.RLIMIT_DATA, r.RLIMIT_NOFILE,"
            " r.RLIMIT_STACK): r.setrlimit(n, (9, 9))"
        ),
        "",
    ),
    "its folder": ("import os, shutil; shutil.rmtree(os.getcwd()); os.chdir('/')", ""),
    "the audit hook": (
        "import sys\ndef hook(*a): raise RuntimeError('no')\nsys.addaudithook(hook)",
        "",
    ),
    "the trace function": (
        "import sys\ndef trace(*a): raise RuntimeError('no')\nsys.settrace(trace)",
        "",
    ),
    "the exception hooks": (
        "import sys, threading\nsys.excepthook = sys.unraisablehook = threading.excepthook = exit",
        "",
    ),
    "stdout": ("import sys; sys.stdout = sys.stderr = sys.__stdout__ = None", ""),
    "stdout closed": ("import sys; sys.stdout.close()", ""),
    "the environment": ("import os; os.environ.clear(); os.environ['PYTHONSTARTUP'] = '/x'", ""),
}
IPYTHON = {
    "empties the namespace": ("%reset -f", ALONE),
    "an input transformer that rewrites later cells": (
        "get_ipython().input_transformers_cleanup.append(lambda lines: ['def bytes_of(*a): return 0\\n'])",
        ALONE,
    ),
    "an input transformer that raises": ("get_ipython().input_transformers_post.append(lambda lines: 1 / 0)", ""),
    "a transformer of trees": ("get_ipython().ast_transformers.append(lambda tree: exit())", ""),
    "run_cell": ("get_ipython().run_cell = lambda *a, **k: None", ""),
    "run_code": ("get_ipython().run_code = get_ipython().run_ast_nodes = lambda *a, **k: True", ""),
    "a hook before each cell that exits": ("import os\nget_ipython().events.register('pre_run_cell', lambda *a: os._exit(0))", ""),
    "a hook after each cell that exits": (
        "import os\nget_ipython().events.register('post_run_cell', lambda *a: os._exit(0))",
        "cell_broke",
    ),
    "a hook after each cell that forgets": (
        "get_ipython().events.register('post_run_cell', lambda *a: get_ipython().user_ns.clear())",
        "",
    ),
    "the namespace": ("get_ipython().user_ns = {}", ""),
    "a namespace of its own kind": (
        "class Liar(dict):\n    def get(self, *a): return lambda *a: 0\nget_ipython().user_ns = Liar()",
        "",
    ),
    "its display hook": ("import sys; sys.displayhook = get_ipython().display_formatter = None\n1", ""),
    "its own exception handler": ("get_ipython().set_custom_exc((Exception,), lambda *a: exit())\n1 / 0", ""),
    "magics": ("def time(*a): exit()\nget_ipython().register_magic_function(time, 'cell', 'time')", ""),
    "a singleton": ("type(get_ipython()).clear_instance(); import IPython; IPython.get_ipython = None", ""),
    "extensions": ("%load_ext sys_exit_now", ""),
    "folders": ("%cd /\n%cd -q ~\n%env HOME=/nowhere\n%pushd /", ""),
    "scripts": ("%%script false --no-raise-error\necho 8 of 8 points", ""),
    "shells": ("!echo 8 of 8 points > results.json\n%sx ls\n!!ls", ""),
    "logs": ("%logstart -o left-behind-by-a-submission", ""),
    "automatic calls": ("%autocall 2\n%automagic off\n%autoawait off\n%xmode Verbose\n%pdb on\n1 / 0", ""),
}  # fmt: skip
WORKERS = {
    "its calls": (f"{WORKER}type(worker)._invoke = lambda *a: (b'V', b'full marks')", ALONE),
    "its sending": (f"{WORKER}type(worker._channel).send = lambda *a: exit()", "cell_broke"),
    "its finding": (
        "import gc\nfor f in gc.get_objects():\n    if type(f).__name__ == 'function' and f.__name__ == 'find': f.__code__ = (lambda n, m: None).__code__",
        "",
    ),
    "its errors": ("import twophase.protocol.errors as e; e.AnswerError = e.error_from = None; e.NotYet.__init__ = None", ""),
    "its process number": (f"{WORKER}worker._pid = 1", ""),
    "its conversations": (f"{WORKER}worker._open[:] = [1] * 1000", ""),
    "its encoder": (
        "import twophase.protocol.codec as c\nc._Encoder.value = lambda *a: 16",
        "",
    ),
}  # fmt: skip

PATCHING = [
    *(in_own_cell(f"patches {name}", source, "defines_check" if name == "check" else "") for name, source in TEST_LIBRARIES.items()),
    *(in_answer_cell(f"patches {name}", source, name == "IN_WORKER") for name, source in TEST_LIBRARIES.items()),
    *(
        in_own_cell(f"patches {name}", source, flag)
        for group in (BUILTINS, LIBRARIES, IPYTHON, WORKERS)
        for name, (source, flag) in group.items()
    ),
]  # fmt: skip
