"""Results forged: in print, in files, and on the channel between the judge and the worker."""

from __future__ import annotations

from hostile.attack import Hostile, as_answer, in_answer_cell, in_own_cell, instead

# `say(kind, body)` puts a message on the channel, in the conversation that is open unless another is given
SAY = """import gc, os, stat, struct, threading, time
import twophase.protocol.wire as w
from twophase.protocol import Callback, ObjectRef, encode
end = [fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}') and stat.S_ISSOCK(os.fstat(fd).st_mode)][-1]
worker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]
def say(kind, body, about=None):
    os.write(end, w.HEAD.pack(len(body), kind, worker._open[-1] if about is None else about) + body)
"""
EVERYWHERE = """import os, struct, json
head = json.dumps(100).encode()
body = struct.pack('>I', len(head)) + head
for fd in range(3, 1024):
    for kind in (b'V', b'r', b'E'):
        try: os.write(fd, struct.pack('>IcQ', len(body), kind, 7) + body)
        except OSError: pass"""
# the same junk each time: among random bytes one in some hundred begins like a message
JUNK = (
    "import os\nfor fd in range(3, 1024):\n    try: os.write(fd, bytes(range(255, -1, -1)) * 16)\n"
    "    except OSError: pass"
)
RECORD = '{"schema": 2, "file": "x.ipynb", "status": "ok", "points": 100, "out_of": 100}'
RAN = "encode({'error': '', 'types': (), 'output': ''})"

ON_CALL = {  # said while an answer is asked for
    "a value, then the answer": (
        "say(w.VALUE, encode(2 * n_tokens * width)); return 2 * n_tokens * width"
    ),
    "a value, then an end": "say(w.VALUE, encode(2 * n_tokens * width)); os._exit(0)",
    "values for conversations to come": (
        "for i in range(99): say(w.VALUE, encode(2), i)\nreturn 2 * n_tokens * width"
    ),
    "a value for the last conversation": (
        "say(w.VALUE, encode(2), worker._open[-1] - 1); return 2 * n_tokens * width"
    ),
    "an object for a value": "say(w.OBJECT, encode(ObjectRef(1))); return 0",
    "a cell's report for a value": f"say(w.RAN, {RAN}); return 0",
    "an error of the judge's": (
        "say(w.ERROR, w.pack_error('internal', 'the grader failed', ())); return 0"
    ),
    "a time-out of the judge's": (
        "say(w.ERROR, w.pack_error('timeout', 'the grader failed', ())); return 0"
    ),
    "an unknown kind": "say(b'?', encode(2)); return 0",
    "the judge's own kinds": (
        "say(w.CALL, w.pack_call('bytes_of', [], {})); say(w.RETURN, encode(2)); return 0"
    ),
    "an enormous length": (
        "os.write(end, struct.pack('>IcQ', 2**32 - 1, b'V', 0) + bytes(100)); return 0"
    ),
    "a length that lies": (
        "os.write(end, struct.pack('>IcQ', 5, b'V', worker._open[-1]) + encode(2)); return 0"
    ),
    "half a frame, then an end": (
        "os.write(end, struct.pack('>IcQ', 99, b'V', worker._open[-1])); os._exit(0)"
    ),
    "an empty frame": "say(w.VALUE, b''); return 0",
    "a header that lies": "say(w.VALUE, struct.pack('>I', 2**31) + b'2'); return 0",
    "a reference as a value": "return ObjectRef(1)",
    "a callback as a value": "return Callback(1)",
    "a callback that was not given": (
        "say(w.CALLBACK, w.pack_call(99, [], {})); return 2 * n_tokens * width"
    ),
    "a callback by its name": "say(w.CALLBACK, w.pack_call('__import__', ['os'], {})); return 0",
    "a callback that is an object": "say(w.CALLBACK, w.pack_call(ObjectRef(1), [], {})); return 0",
    "a callback that is junk": "say(w.CALLBACK, b'junk'); return 0",
    "a value of a hundred megabytes": (
        "os.write(end, struct.pack('>IcQ', 10**8, b'V', worker._open[-1])); return 0"
    ),
    "a pickle": "import pickle; say(w.VALUE, pickle.dumps(2 * n_tokens * width)); return 0",
    "its channel closed": "os.close(end); return 2 * n_tokens * width",
    "its channel replaced": (
        "import socket\na, b = socket.socketpair(); os.dup2(a.fileno(), end); return 2 * n_tokens *"
        " width"
    ),
    "its channel shut": (
        "import socket\nsocket.socket(fileno=end).shutdown(socket.SHUT_WR); return 0"
    ),
    "its conversations forgotten": "worker._open.clear(); return 2 * n_tokens * width",
}
ON_CELL = {  # said by a cell of the submission's own
    "a report of its own": f"{SAY}say(w.RAN, {RAN})",
    "a report, then sleep": f"{SAY}say(w.RAN, {RAN}); time.sleep(0.1)",
    "a report that says everything is right": (
        f"{SAY}say(w.RAN, encode({{'error': '', 'types': (), 'output': '', 'points': 8, 'right':"
        " True}))"
    ),
    "a report of another shape": (
        f"{SAY}say(w.RAN, encode({{'error': 1, 'types': [], 'output': None}}))"
    ),
    "a value": f"{SAY}say(w.VALUE, encode(8))",
    "a callback": f"{SAY}say(w.CALLBACK, w.pack_call(1, [], {{}}))",
    "a thread that answers": (
        f"{SAY}def answers():\n    while True:\n        time.sleep(0.001)\n        if worker._open:"
        " say(w.VALUE, encode(8))\nthreading.Thread(target=answers, daemon=True).start()"
    ),
    "frames everywhere": EVERYWHERE,
    "junk everywhere": JUNK,
}
BROKEN = (
    "frames everywhere",
    "junk everywhere",
    "a report of another shape",
    "a value",
    "a callback",
)
PRINTED = {
    "a score on stdout": "print('{\"points\": 100}'); import os; os.write(1, b'8 of 8 points')",
    "a verdict on stderr": "import sys, os; print('Traceback', file=sys.stderr); os.write(2, b'FAILED')",
    "a score as output": "8.0",
    "a page": "display({'text/html': '<script>alert(1)</script>', 'text/plain': '</pre><script>alert(2)</script>'}, raw=True)\nprint('</pre><script>alert(3)</script>')",
    "an exception with a page": "raise ValueError('</pre><img src=x onerror=alert(4)>')",
}  # fmt: skip
FILES = """for folder in ('.', '..', '../..', '/tmp', '/autograder/results', '/grades', {root!r}):
    for name in ('results.jsonl', 'results.json', 'gradebook.db', 'grades.csv'):
        try: open(f'{{folder}}/{{name}}.left-behind-by-a-submission', 'a').write({record!r})
        except OSError: pass"""

CALLBACKS = {  # ways to use the check's function other than once, rightly
    "never": "return 1",
    "twice": "choose([p / 8 for p in probs]); return choose([p / 8 for p in probs])",
    "with an object": "return choose(object())",
    "with a nest": "x = 0\n    for _ in range(40): x = [x]\n    return choose(x)",
    "with nan": "return choose([float('nan')] * 3)",
    "with what is equal to everything": (
        "class E(list):\n        __eq__ = lambda s, o: True\n    return choose(E(probs))"
    ),
    "with too much": "return choose([0.1] * 10**6)",
    "with nothing": "return choose()",
    "with a name": "return choose(given=[p / 8 for p in probs])",
    "with names of the judge's": "return choose(self=1, args=2, body=3, function=4, __class__=5)",
    "with itself": "return choose(choose)",
    "and returns it": "return choose",
    "recursively": "def again(): return again() + choose(probs)\n    return again()",
}


def _sampler(name: str, body: str) -> Hostile:
    return instead(f"callback: {name}", "sampler", f"def sample(choose, probs):\n    {body}")


KEEPS_ONE = (
    "kept = []\ndef sample(choose, probs):\n    kept.append(choose)\n    return choose([p / 8 for p"
    " in probs])"
)

FORGING = [
    *(as_answer(f"says {name}", body, before=SAY) for name, body in ON_CALL.items()),
    *(in_own_cell(f"says {name}", body, "cell_broke" if name in BROKEN else "") for name, body in ON_CELL.items()),
    in_answer_cell("says frames everywhere", EVERYWHERE, True),
    *(in_own_cell(f"shows {name}", body) for name, body in PRINTED.items()),
    *(in_answer_cell(f"shows {name}", body, "raise" in body) for name, body in PRINTED.items()),
    in_own_cell("forges results in files", FILES.format(root="/", record=RECORD)),
    *(_sampler(name, body) for name, body in CALLBACKS.items()),
    instead("a callback after its call", "softmax", "def softmax(x): return kept[0]([1.0]) if 'kept' in globals() else 0"),
    as_answer("flood of callbacks not given", "while True: say(w.CALLBACK, w.pack_call(1, [], {}))", before=SAY),
    as_answer("junk on every descriptor", f"{JUNK}\nreturn 0"),
]  # fmt: skip

SLOW = [
    as_answer(
        "says a value, then silence",
        "say(w.VALUE, encode(2 * n_tokens * width)); threading.Event().wait()",
        before=SAY,
    ),
    instead(
        "callbacks without end",
        "sampler",
        "def sample(choose, probs):\n    while True: choose(probs)",
    ),
    as_answer(
        "one byte at a time",
        "for b in w.HEAD.pack(2**20, w.VALUE, worker._open[-1]) + bytes(99): os.write(end,"
        " bytes([b])); time.sleep(0.05)",
        before=SAY,
    ),
    as_answer(
        "half a frame, then silence",
        "os.write(end, w.HEAD.pack(2**20, w.VALUE, worker._open[-1])); threading.Event().wait()",
        before=SAY,
    ),
]
