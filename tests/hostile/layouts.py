"""Cells deleted, doubled, moved, split, merged, unlocked, retyped; and files that are notebooks only by their name."""

from __future__ import annotations

import copy
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

from hostile.attack import Hostile
from hostile.course import (
    RIGHT,
    STUBS,
    TOPIC,
    answer_cell,
    cell,
    cells,
    check_cell,
    dump,
    setup_cell,
)

Cells = list[dict[str, Any]]
BYTES = f"{TOPIC}-bytes"
HALF = "def bytes_of(n_tokens, width):\n    return n_tokens * width"  # a mistake with a name


def _changed(
    name: str, change: Callable[[Cells], Cells | None], lost: str = "", flag: str = ""
) -> Hostile:
    """A notebook of right answers after `change`, which may work in place."""
    made = copy.deepcopy(cells(dict(RIGHT)))
    made = change(made) or made
    return Hostile(f"cells: {name}", dump(made), frozenset(lost.split()), flag)


def _id_of(c: dict[str, Any]) -> Any:
    return c["metadata"].get("nbgrader", {}).get("grade_id", "")


def _answer(made: Cells) -> dict[str, Any]:
    return next(c for c in made if _id_of(c) == BYTES)


def _marks(**marks: Any) -> Callable[[Cells], None]:
    """Change what nbgrader's metadata say of the first answer."""
    return lambda made: _answer(made)["metadata"]["nbgrader"].update(marks)


def _checks(source: str) -> Callable[[Cells], None]:
    """Change the source of every check cell."""

    def change(made: Cells) -> None:
        for c in made:
            if c["metadata"].get("nbgrader", {}).get("grade"):
                c["source"] = source

    return change


def _retyped(kind: str, *, answers: bool) -> Callable[[Cells], None]:
    def change(made: Cells) -> None:
        for c in made:
            if (_id_of(c) == BYTES) if answers else _id_of(c).endswith("-check"):
                c["cell_type"] = kind

    return change


def _without(*ids: str) -> Callable[[Cells], Cells]:
    return lambda made: [c for c in made if _id_of(c) not in ids]


def _split(made: Cells) -> Cells:
    at = made.index(_answer(made))
    head, tail = RIGHT["bytes"].splitlines()
    return [*made[:at], answer_cell("bytes", head), cell(tail), *made[at + 1 :]]


def _split_with_its_id(made: Cells) -> Cells:
    at = made.index(_answer(made))
    helper = "def both(n):\n    return 2 * n"
    rest = "def bytes_of(n_tokens, width):\n    return both(n_tokens) * width"
    return [*made[:at], answer_cell("bytes", helper), answer_cell("bytes", rest), *made[at + 1 :]]


def _helper_in_a_check(made: Cells) -> Cells:
    _answer(made)["source"] = "def bytes_of(n_tokens, width):\n    return both(n_tokens) * width"
    helper = check_cell("softmax") | {"source": "def both(n):\n    return 2 * n"}
    return [made[0], helper, *made[1:]]


def _import_in_the_setup(made: Cells) -> None:
    made[0]["source"] += "\nimport math"
    _answer(made)["source"] = "def bytes_of(*sizes):\n    return 2 * math.prod(sizes)"


def _merged_into(slug: str, *, stubs: bool) -> Callable[[Cells], Cells]:
    def change(made: Cells) -> Cells:
        everything = answer_cell(slug, "\n".join(RIGHT.values()))
        others = [answer_cell(s, STUBS[s]) for s in RIGHT if s != slug] if stubs else []
        return [setup_cell(), *others, everything]

    return change


def _check_as_answer(made: Cells) -> None:
    _answer(made)["source"] = STUBS["bytes"]
    _checks(RIGHT["bytes"])(made)


CELLS = [
    _changed("a right one, then a stub with its id", lambda m: [*m, answer_cell("bytes", STUBS["bytes"])], "", "duplicate_cell"),
    _changed("a right one, then a stub with its id, then its check", lambda m: [m[0], m[2], answer_cell("bytes", STUBS["bytes"]), *m[3:]], "", "duplicate_cell"),
    _changed("a right one, then a wrong one with its id", lambda m: [*m, answer_cell("bytes", HALF)], "", "duplicate_cell"),
    _changed("a right one, then a wrong one with its id, then its check", lambda m: [m[0], m[2], answer_cell("bytes", HALF), *m[3:]], "bytes", "duplicate_cell"),
    _changed("a wrong one by the same name below its check", lambda m: [*m, cell(HALF)]),
    _changed("a loop over the same name below its check", lambda m: [*m, cell("for bytes_of in (len, max): pass")]),
    _changed("a wrong one by the same name before its check", lambda m: [*m[:3], cell(HALF), *m[3:]], "bytes"),
    _changed("a copy of its check below a wrong one", lambda m: [*m, cell(HALF), check_cell("bytes")], "bytes"),
    _changed("split by the editor, which copies the id", _split_with_its_id),
    _changed("a helper in a copied check cell", _helper_in_a_check, "", "check_cell_changed"),
    _changed("an import in the setup cell", _import_in_the_setup, "", "locked_cell_changed"),
    _changed("a stub, then a right one with its id", lambda m: [answer_cell("bytes", STUBS["bytes"]), *m], "", "duplicate_cell"),
    _changed("an answer twice", lambda m: [*m, answer_cell("bytes", RIGHT["bytes"])], "", "duplicate_cell"),
    _changed("an answer deleted", _without(BYTES), "bytes", "missing_cell"),
    _changed("two answers deleted", _without(BYTES, f"{TOPIC}-softmax"), "bytes softmax", "missing_cell"),
    _changed("an answer emptied", lambda m: _answer(m).update(source=""), "bytes"),
    _changed("an answer of comments", lambda m: _answer(m).update(source="# 2 * n * w"), "bytes"),
    _changed("all in reverse", lambda m: m[::-1]),
    _changed("answers in another order", lambda m: [m[0], *m[7:], *m[1:7]]),
    _changed("split in the middle", _split, "bytes"),
    _changed("merged into the last, stubs before", _merged_into("softmax", stubs=True)),
    _changed("merged into the last, no others", _merged_into("softmax", stubs=False), "", "missing_cell"),
    _changed("merged into the first, no others", _merged_into("bytes", stubs=False), "", "missing_cell"),
    _changed("setup unlocked and changed", lambda m: m[0].update(source="raise SystemExit"), "", "locked_cell_changed"),
    _changed("setup emptied", lambda m: m[0].update(source=""), "", "locked_cell_changed"),
    _changed("setup deleted", lambda m: m[1:]),
    _changed("setup at the end", lambda m: [*m[1:], m[0]]),
    _changed("setup twice, once changed", lambda m: [*m, setup_cell("del np")], "", "locked_cell_changed"),
    _changed("setup a text", lambda m: m[0].update(cell_type="markdown")),
    _changed("checks changed to points", _checks("2"), "", "check_cell_changed"),
    _changed("checks that exit", _checks("import os; os._exit(0)"), "", "check_cell_changed"),
    _changed("checks changed into the answer", _check_as_answer, "", "check_cell_changed"),
    _changed("checks deleted", lambda m: [c for c in m if not _id_of(c).endswith("-check")]),
    _changed("checks twice", lambda m: [*m, check_cell("bytes"), check_cell("bytes")]),
    _changed("checks are texts", _retyped("markdown", answers=False)),
    _changed("an answer is a text", _retyped("markdown", answers=True), "bytes", "missing_cell"),
    _changed("an answer is raw", _retyped("raw", answers=True), "bytes", "missing_cell"),
    _changed("an answer of an unknown kind", _retyped("heading", answers=True), "bytes", "missing_cell"),
    _changed("an answer locked", _marks(locked=True)),
    _changed("an answer that is graded", _marks(grade=True, points=100)),
    _changed("an answer worth 10^400", _marks(points=10**400)),
    _changed("an answer worth less than nothing", _marks(points=-3)),
    _changed("an answer worth nan", _marks(points=float("nan"))),
    _changed("an answer worth a text", _marks(points="100")),
    _changed("an answer of a later schema", _marks(schema_version=99, task=True, solution=False)),
    _changed("an answer without an id", _marks(grade_id=""), "", "missing_cell"),
    _changed("an answer whose id is a number", _marks(grade_id=7), "", "missing_cell"),
    _changed("an answer whose id is a list", _marks(grade_id=[BYTES]), "", "missing_cell"),
    _changed("an answer with an id of another topic", _marks(grade_id="two_phases-metrics"), "", "missing_cell"),
    _changed("an answer with another's id", _marks(grade_id=f"{TOPIC}-softmax"), "", "missing_cell"),
    _changed("an answer with its check's id", _marks(grade_id=f"{BYTES}-check"), "", "missing_cell"),
    _changed("checks with the answers' ids", lambda m: [*m, {**check_cell("bytes"), "metadata": {"nbgrader": {"grade_id": BYTES, "grade": True}}}], "", "duplicate_cell"),
    _changed("texts deleted", lambda m: [c for c in m if c["cell_type"] == "code"]),
    _changed("ids of cells all the same", lambda m: [{**c, "id": "x"} for c in m]),
    _changed("no ids of cells", lambda m: [{k: v for k, v in c.items() if k != "id"} for c in m]),
    _changed("everything twice", lambda m: m + m),
    _changed("untouched", lambda m: cells({}), " ".join(RIGHT)),
    _changed("a thousand texts", lambda m: m + [cell("x", kind="markdown")] * 1_900),
    _changed("hundreds of cells", lambda m: [m[0], *[cell("x = 1")] * 300, *m[1:]]),
    _changed("forty-five cells that exit", lambda m: [m[0], *[cell("import os; os._exit(0)")] * 45, *m[1:]], "", "cell_broke"),
    _changed("a cell of seven megabytes", lambda m: [*m, cell("#" * 7_000_000)]),
    _changed("a line of a megabyte", lambda m: [m[0], cell("x = [" + "1," * 30_000 + "]"), *m[1:]]),
    _changed("attachments and outputs", lambda m: [{**c, "attachments": {"x": 1}, "outputs": [{"output_type": "display_data", "data": {"text/html": "<script>"}}]} for c in m]),
    _changed("tags that skip and forgive", lambda m: [{**c, "metadata": c["metadata"] | {"tags": ["nbval-skip", "raises-exception", "skip-execution"]}} for c in m]),
]  # fmt: skip


def _with(name: str, data: bytes, lost: str = "") -> Hostile:
    return Hostile(f"format: {name}", data, frozenset(lost.split()))


def _tree(cells_: Cells | None = None, **more: Any) -> bytes:
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells_ or cells(dict(RIGHT))}
        | more
    ).encode()


def old_version(number: int) -> bytes:
    """The right answers in the format of 2011 or 2013."""
    old = []
    for c in cells(dict(RIGHT)):
        code = {
            "input": c["source"],
            "outputs": [],
            "language": "python",
            "collapsed": False,
            "prompt_number": 1,
        }
        rest = code if c["cell_type"] == "code" else {"source": c["source"]}
        old.append({"cell_type": c["cell_type"], "metadata": c["metadata"], **rest})
    return json.dumps(
        {"nbformat": number, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": old}]}
    ).encode()


def version_3() -> bytes:
    """The right answers in the format of 2013."""
    return old_version(3)


def _lines(end: str) -> Cells:
    return [
        {**c, "source": [line + end for line in c["source"].split("\n")]}
        for c in cells(dict(RIGHT))
    ]


KERNELS = {
    "R": "ir",
    "Julia": "julia-1.10",
    "bash": "bash",
    "nothing": "",
    "a kernel that is a list": ["x"],
}
JUNK: list[Any] = [
    None,
    3,
    [],
    {},
    {"cell_type": 4},
    {"cell_type": "code", "source": {"a": 1}},
    {"cell_type": "code", "metadata": []},
]
FORMATS = [
    _with("version 3", version_3()),
    _with("version 2", old_version(2)),
    _with("version 5", _tree(nbformat=5, nbformat_minor=0)),
    _with("a version that is a text", _tree(nbformat="four", metadata=None)),
    *(_with(f"written for {n}", _tree(metadata={"kernelspec": {"name": k, "language": n}, "language_info": {"name": n}})) for n, k in KERNELS.items()),
    _with("junk among the cells", _tree([*JUNK, *cells(dict(RIGHT))])),
    _with("lines", _tree(_lines("\n"))),
    _with("lines of Windows", _tree(_lines("\r\n"))),
    _with("sources of Windows", _tree().replace(rb"\n", rb"\r\n")),
    _with("a file of Windows", json.dumps(json.loads(_tree()), indent=1).replace("\n", "\r\n").encode()),
    _with("a byte order mark", b"\xef\xbb\xbf" + _tree()),
    _with("UTF-16", _tree().decode().encode("utf-16")),
    _with("UTF-16, the other way round", "\ufeff".encode("utf-16-be") + _tree().decode().encode("utf-16-be")),
    _with("bytes that are no text", _tree([cell("@@@", kind="markdown"), *cells(dict(RIGHT))]).replace(b"@@@", b"\xff\xfe\x80")),
    _with("keys given twice", _tree().replace(b'"metadata": {}, "cells"', b'"cells": [], "metadata": {}, "cells"', 1)),
    _with("NaN and Infinity", _tree(metadata={"x": [float("nan"), float("inf")]})),
    _with("a signature", _tree(metadata={"signature": "sha256:0", "trusted": True})),
]  # fmt: skip


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("x.ipynb", _tree())
    return out.getvalue()


UNREADABLE = {
    "empty": b"",
    "blank": b"  \n",
    "nulls": bytes(5000),
    "not JSON": b"# my homework",
    "cut short": dump(cells({}))[:-40],
    "a number": b"7",
    "a list": b"[]",
    "null": b"null",
    "no cells": b'{"nbformat": 4}',
    "cells that are no list": b'{"cells": {"a": 1}}',
    "cells that are null": b'{"cells": null, "worksheets": null}',
    "deep": b'{"cells":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep cells": b'{"cells": [' + b'{"a":' * 100_000,
    "an enormous number": b'{"cells": ' + b"9" * 100_000 + b"}",
    "too large": dump([cell("#" * 9_000_000)]),
    "too many cells": dump([cell("1")] * 2_001),
    "binary": bytes(range(256)) * 100,
    "two notebooks": _tree() + b"\n" + _tree(),
    "nulls after it": _tree() + bytes(100),
    "marks of a conflict": (
        _tree().replace(b'"cells"', b'\n<<<<<<< HEAD\n"cells"\n=======\n"cells"\n>>>>>>> mine\n', 1)
    ),
    "compressed": gzip.compress(_tree()),
    "a zip": _zip(),
    "a page": b"<!DOCTYPE html><html><body>my homework</body></html>",
    "a page that was saved for it": b"<html><head><title>Sign in</title></head></html>",
    "a script": b"import math\nprint(1)\n",
    "a document": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "a pickle": b"cos\nsystem\n(S'true'\ntR.",
    "a text of JSON": json.dumps(_tree().decode()).encode(),
    "UTF-16 without a mark": _tree().decode().encode("utf-16-le"),
    "UTF-16 cut in a character": _tree().decode().encode("utf-16")[:-301],
}
