"""Drive JupyterLab as a learner does: an exercise from its stub through a wrong answer, an endless
loop, hints and the author's answer to the right one; or a chapter's runnable copy to its end.

    .venv/bin/python tools/look/notebook.py pruning-config 13_pruning --out scratch/lab
"""

import argparse
import ast
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromium import Browser, browser

from twophase.checks import registry
from twophase.cli.learn import learners_environment
from twophase.cli.my_folder import fill
from twophase.lab.course import COURSE, author_source

PATIENCE_S = 400  # of a cell, on a busy machine
FOR_INSTRUCTORS = ("Create Assignment", "Nbgrader", "Formgrader", "Validate")
# All cells stand in the page, also those far from the window.
SETTINGS = {"@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"}}
CELLS = "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
WRITE = """(() => {{ const cell = {cells}[{at}], box = cell.querySelector('.cm-content');
  cell.scrollIntoView({{block: 'center'}}); box.focus();
  document.getSelection().selectAllChildren(box); return box.innerText; }})()"""
ASKED = "{cells}[{at}].querySelector('.jp-InputPrompt').innerText"
SAID = "{cells}[{at}].querySelector('.jp-OutputArea')?.innerText ?? ''"
OPEN = """(() => {{
  const folds = [...{cells}[{at}].querySelectorAll('details')];
  folds.forEach((fold) => {{ fold.open = true; }});
  const cut = (pre) => pre.scrollWidth > pre.clientWidth + 1
    || getComputedStyle(pre).wordBreak === 'break-all';
  return {{
    all: folds.length, nested: folds.filter((fold) => fold.parentElement.closest('details')).length,
    cut: [...{cells}[{at}].querySelectorAll('details pre')]
      .filter(cut).map((pre) => pre.innerText.slice(0, 50)),
  }};
}})()"""
FIRST = """(() => {{ const box = {cells}[0].getBoundingClientRect();
  return [box.x + 200, box.y + 15]; }})()"""
# A folded cell shows no star: the toolbar says whether the kernel works, and whether there is one.
WAITS = """document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status !== 'idle'
  || !/Python/.test(document.querySelector('.jp-Toolbar-kernelName')?.innerText)
  || [...document.querySelectorAll('.jp-InputPrompt')].some((p) => p.innerText.includes('*'))"""
RAN = """[...document.querySelectorAll('.jp-Notebook .jp-InputPrompt')]
  .map((prompt) => parseInt(prompt.innerText.slice(1))).filter((number) => number)"""
ERRORS = """[...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')]
  .filter((output) => /error|stderr/.test(output.dataset.mimeType ?? ''))
  .map((output) => output.innerText.slice(0, 200))"""


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """JupyterLab as `twophase lab` starts it, in a folder; its address without a path."""
    settings = folder / ".settings"
    for name, values in SETTINGS.items():
        (settings / name).parent.mkdir(parents=True)
        (settings / name).write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    told = ["--no-browser", "--allow-root", "--ServerApp.root_dir=.", f"--port={port}"]
    environment = learners_environment(os.environ) | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
        "JUPYTER_TOKEN": token,
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *told],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token={token}&reset"
    finally:
        server.terminate()
        server.wait(timeout=60)


def open_notebook(tab: Browser, url: str, n_cells: int) -> None:
    """Wait until all cells of the notebook stand on the page and its kernel is there. TimeoutError
    if they do not."""
    tab.send(
        "Emulation.setDeviceMetricsOverride",
        width=1300,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        tab.send("Page.navigate", url=url)
        for _ in range(120):
            time.sleep(1)
            try:
                if tab.run(f"{CELLS}.length") == n_cells and not tab.run(WAITS):
                    time.sleep(3)  # what is asked of a kernel that is not there yet is lost
                    return
            except RuntimeError:  # between two pages
                continue
    raise TimeoutError(f"JupyterLab did not open {url} with {n_cells} cells.")


def shift_enter(tab: Browser) -> None:
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8}
    tab.send("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
    tab.send("Input.dispatchKeyEvent", type="keyUp", **key)


def run_cell(tab: Browser, at: int, source: str | None = None) -> tuple[str, float]:
    """Run a cell, with other text in it if there is one: what it says, and the seconds it took."""
    tab.run(WRITE.format(cells=CELLS, at=at))
    time.sleep(0.3)
    if source is not None:
        tab.run(WRITE.format(cells=CELLS, at=at))
        tab.send("Input.insertText", text=source)
        time.sleep(0.3)
    before, started = tab.run(ASKED.format(cells=CELLS, at=at)), time.monotonic()
    shift_enter(tab)
    while time.monotonic() < started + PATIENCE_S:
        time.sleep(0.2)
        asked = tab.run(ASKED.format(cells=CELLS, at=at))
        if asked != before and "*" not in asked:
            time.sleep(0.3)
            return tab.run(SAID.format(cells=CELLS, at=at)), time.monotonic() - started
    raise TimeoutError(f"cell {at} did not end in {PATIENCE_S} s.")


def shot(tab: Browser, out: Path | None, name: str) -> None:
    if out:
        out.mkdir(parents=True, exist_ok=True)
        picture = tab.send("Page.captureScreenshot", format="png")["data"]
        (out / f"{name}.png").write_bytes(b64decode(picture))


def with_body(source: str, body: str) -> str:
    """A cell with another body in every function, and in every method of its classes."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = ast.parse(body).body
    return ast.unparse(tree)


def exercise(tab: Browser, folder: Path, address: str, name: str, out: Path | None) -> list[str]:
    """One exercise on the learner's way; what was not as promised."""
    stem = registry.stem(name.partition("-")[0])
    cells = json.loads((folder / f"{stem}.ipynb").read_text("utf8"))["cells"]
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    sources = ["".join(cell["source"]) for cell in cells]
    answer = ids.index(name)
    check = next(i for i, text in enumerate(sources) if f'check("{name}")' in text)
    open_notebook(tab, address.format(f"{stem}.ipynb"), len(cells))
    found = [
        f"a learner sees {word!r}"
        for word in FOR_INSTRUCTORS
        if word in tab.run("document.body.innerText")
    ]
    for at in range(answer):
        if cells[at]["cell_type"] == "code" and not re.search(r"NotYet\(|check\(", sources[at]):
            run_cell(tab, at)
    right = author_source(name) or ""
    steps = {
        "stub": (None, "not written yet"),
        "wrong": (with_body(right, "return None"), "not right yet"),
        "loop": (with_body(right, "while True:\n    pass"), "did not end within"),
        "right": (right, "Right."),
    }
    for step, (source, promised) in steps.items():
        run_cell(tab, answer, source)
        said, seconds = run_cell(tab, check)
        folds = tab.run(OPEN.format(cells=CELLS, at=check))
        tab.run(f"{CELLS}[{check}].scrollIntoView({{block: 'center'}})")
        time.sleep(1)
        shot(tab, out, f"{name}-{step}")
        print(f"{name} {step}: {seconds:.0f} s, {folds['all']} folds", flush=True)
        if promised not in said:
            found.append(f"{step}: no word of {promised!r} in {said[:200]!r}")
        if step != "right" and folds["all"] != 4 - (step == "stub"):
            found.append(f"{step}: {folds['all']} folds of hints and answer")
        if folds["nested"] != max(0, folds["all"] - 1):
            found.append(f"{step}: a hint is not inside of the one before")
        found += [f"{step}: code is cut or broken inside of words: {text}" for text in folds["cut"]]
    return [f"{name} {line}" for line in found]


def chapter(tab: Browser, folder: Path, address: str, name: str, out: Path | None) -> list[str]:
    """The runnable copy of a chapter, all its cells; what was not as promised."""
    cells = json.loads((folder / "chapters" / f"{name}.ipynb").read_text("utf8"))["cells"]
    open_notebook(tab, address.format(f"chapters/{name}.ipynb"), len(cells))
    started = time.monotonic()
    x, y = tab.run(FIRST.format(cells=CELLS))
    for kind in ("mousePressed", "mouseReleased"):
        tab.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    for at, cell in enumerate(cells):  # each time the next cell is chosen, folded or not
        shift_enter(tab)
        time.sleep(0.7 if cell["cell_type"] == "code" else 0.2)
        while tab.run(WAITS):
            if time.monotonic() > started + 3 * PATIENCE_S:
                raise TimeoutError(f"{name}: cell {at} does not end.")
            time.sleep(0.2)
        if cell["cell_type"] == "code" and out:
            shot(tab, out, f"{name}-{at:03}")
    code = [cell["metadata"] for cell in cells if cell["cell_type"] == "code"]
    hidden = [bool(about.get("jupyter", {}).get("source_hidden")) for about in code]
    wanted = [number for number, folded in enumerate(hidden, 1) if not folded]
    ran = tab.run(RAN)  # of the others JupyterLab shows no number; they count
    found = [] if ran == wanted else [f"cells {wanted} should have run, {ran} did"]
    print(f"{name}: {len(cells)} cells in {time.monotonic() - started:.0f} s", flush=True)
    found += tab.run(ERRORS)
    return [f"{name} {line}" for line in found]


def main() -> int:
    parser = argparse.ArgumentParser(description="JupyterLab as a learner drives it.")
    parser.add_argument(
        "names", nargs="+", help="exercises (pruning-config), chapters (13_pruning)"
    )
    parser.add_argument("--out", type=Path, help="folder for screenshots; none without it")
    options = parser.parse_args()
    known = {i for topic in registry.topics() for i in registry.ids(topic)}
    known |= {page.stem for page in COURSE.glob("book/[0-9]*.md")}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(
            f"no exercise and no chapter is called {unknown[0]}: give an exercise's id"
            " (pruning-config), or the name of a chapter's file (13_pruning)."
        )
    problems: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as course:
        for part in ("exercises", "book"):
            shutil.copytree(COURSE / part, Path(course, part))
        fill(Path(course))
        folder = Path(course, "my")
        with lab(folder) as address:
            for name in options.names:
                drive = chapter if name[0].isdigit() else exercise
                with browser() as tab:  # a new one: what is not saved keeps a page from leaving
                    problems += drive(tab, folder, address, name, options.out)
    print("\n".join(problems) if problems else "No problem found.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
