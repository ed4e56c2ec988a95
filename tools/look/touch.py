"""The built pages by finger, on a phone: a dot that can be dragged follows it while the page stands
still, a slider moves, a step is taken, a question answers."""

import argparse
import sys
from pathlib import Path

from chromium import Browser, browser
from look import HTML, pages

STEP_PX, STEPS = 6, 10
# What to touch, how far to the right to drag it (0: a tap), and what is read before and after.
PROMISES = {
    "a dot follows": (".tp-play .tp-dot", 60, "{at}.getAttribute('aria-valuenow')"),
    "a slider moves": (".tp-play input[type=range]", 60, "{at}.value"),
    "a step is taken": (
        ".tp-mechanism .tp-buttons button:nth-of-type(2)",
        0,
        "{at}.closest('section').querySelector('input').value",
    ),
    "a question answers": (
        "form.tp-question input",
        0,
        "{at}.closest('form').querySelector('.tp-answer').innerText",
    ),
}
UNANSWERED = "document.querySelectorAll('.tp-again').forEach((button) => button.click())"
MIDDLE = """(() => {{ {at}.scrollIntoView({{block: 'center', behavior: 'instant'}});
  const box = {at}.getBoundingClientRect();
  return [box.x + box.width * {share}, box.y + box.height / 2]; }})()"""


def touch(tab: Browser, kind: str, *at: float) -> None:
    points = [{"x": at[0], "y": at[1]}] if at else []
    tab.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def promises(tab: Browser) -> list[str]:
    """Which of the promises the open page does not keep; those that it does not make are kept."""
    broken = []
    tab.run(UNANSWERED)
    for what, (where, far, read) in PROMISES.items():
        at = f"document.querySelector({where!r})"
        if not tab.run(f"Boolean({at})"):
            continue
        x, y = tab.run(MIDDLE.format(at=at, share=0.2 if "range" in where else 0.5))
        before, top = tab.run(read.format(at=at)), tab.run("scrollY")
        touch(tab, "touchStart", x, y)
        for step in range(1, STEPS + 1 if far else 1):
            touch(tab, "touchMove", x + far * step / STEPS, y + step * STEP_PX)
        touch(tab, "touchEnd")
        after = tab.run(f"new Promise((r) => setTimeout(() => r({read.format(at=at)}), 120))")
        if before == after:
            broken.append(f"touch does nothing: {what} ({where})")
        if where.endswith(".tp-dot") and tab.run("scrollY") != top:
            broken.append("the page scrolls while a finger drags the dot")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description="The built pages by finger, on a phone.")
    parser.add_argument("pages", nargs="*", help="such as book/index; all pages if none is given")
    options = parser.parse_args()
    problems = 0
    with browser() as tab:
        tab.send("Emulation.setTouchEmulationEnabled", enabled=True)
        for page in pages(options.pages):
            tab.open(page.as_uri(), "phone")
            for line in promises(tab):
                name = Path(page).relative_to(HTML).with_suffix("").as_posix()
                print(f"{name} {line}", flush=True)
                problems += 1
    print(f"{problems} problems found." if problems else "No problem found.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
