"""Walk through the built pages with the keyboard alone: what takes the focus, whether one sees it,
and whether questions, steps, folded code and what can be played with do what their keys promise."""

import argparse
import sys
from pathlib import Path

from chromium import Browser, browser
from look import HTML, pages

MOST = 1500  # stops of a page, after which it is a trap
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
STOP = (Path(__file__).parent / "keyboard.js").read_text("utf8")
# What a key must do: where to stand, the key, what is read before and after (they differ).
ANSWER = "{at}.closest('form').querySelector('.tp-answer').innerText"
STEP = "{at}.closest('section').querySelector('input').value"
PROMISES = {
    "a question answers": ("form.tp-question input", " ", ANSWER),
    "a step is taken": (".tp-mechanism .tp-buttons button", "ArrowRight", STEP),
    "folded code opens": ("article details.hide > summary", "Enter", "{at}.parentElement.open"),
    "a slider moves": (".tp-play input[type=range]", "ArrowRight", "{at}.value"),
    "a menu moves": (".tp-play select", "ArrowDown", "{at}.value"),
}
UNANSWERED = "document.querySelectorAll('.tp-again').forEach((button) => button.click())"
STILL = [{"name": "prefers-reduced-motion", "value": "reduce"}]  # what slides in is there at once


def press(tab: Browser, key: str) -> None:
    text = {"Enter": "\r", " ": " "}.get(key, "")
    code = "Space" if key == " " else key
    about = {"key": key, "code": code, "windowsVirtualKeyCode": KEYS[key]}
    tab.send("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
    tab.send("Input.dispatchKeyEvent", type="keyUp", **about)


def walk(tab: Browser) -> tuple[int, list[str]]:
    """All stops of the Tab key on the open page: how many, and what is wrong with them."""
    found: list[str] = []
    for number in range(MOST):
        press(tab, "Tab")
        stop = tab.run(STOP)
        if stop is None or stop["again"]:
            return number, found
        found += [f"{stop['name']!r} {problem}" for problem in stop["found"]]
    return MOST, [*found, f"after {MOST} stops the page has not ended"]


def promises(tab: Browser) -> list[str]:
    """Which of the promises the open page does not keep; those that it does not make are kept."""
    broken = []
    tab.run(UNANSWERED)
    for what, (where, key, read) in PROMISES.items():
        at = f"document.querySelector({where!r})"
        if not tab.run(f"Boolean({at})"):
            continue
        look = read.format(at=at)
        tab.run(f"{at}.scrollIntoView({{block: 'center'}}), {at}.focus()")
        before = tab.run(look)
        press(tab, key)
        after = tab.run(f"new Promise((r) => setTimeout(() => r({look}), 80))")
        if before == after:
            broken.append(f"the key {key!r} does nothing: {what} ({where})")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description="The built pages by keyboard alone.")
    parser.add_argument("pages", nargs="*", help="such as book/index; all pages if none is given")
    parser.add_argument("--views", default="light,phone")
    options = parser.parse_args()
    problems = []
    with browser() as tab:
        for page in pages(options.pages):
            for view in options.views.split(","):
                tab.open(page.as_uri(), view)
                tab.send("Emulation.setEmulatedMedia", features=STILL)
                name = Path(page).relative_to(HTML).with_suffix("").as_posix()
                stops, found = walk(tab)
                print(f"{name} [{view}] {stops} stops", flush=True)
                problems += [f"{name} [{view}] {line}" for line in [*found, *promises(tab)]]
    print("\n".join(problems) if problems else "No problem found.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
