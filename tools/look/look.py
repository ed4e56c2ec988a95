"""Look at the built pages: screenshots (light, dark, phone), paper, accessibility (axe-core), errors
and outside requests (README.md says how)."""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from chromium import VIEWS, Browser, browser

ROOT = Path(__file__).resolve().parent.parent.parent
HTML = ROOT / "_build" / "html"
HEAVIEST = 1_500_000  # bytes of a chapter with all that it asks for
CUT = """[...document.querySelectorAll('article .tp-scroll, article div.math, article pre')]
  .filter(box => box.scrollWidth > box.clientWidth + 1 && box.clientWidth)
  .map(box => (box.innerText || box.tagName).trim().slice(0, 60))"""
WIDE = CUT.replace(", article div.math, article pre", "")  # tables alone
PAPER = (Path(__file__).parent / "paper.js").read_text("utf8")
FIGURES = (Path(__file__).parent / "figures.js").read_text("utf8")
# What can be played with, at both ends of each slider.
ENDS = """(() => {
  const figures = FIGURES, found = [];
  for (const slider of document.querySelectorAll('article .tp-play.tp-live input[type=range]')) {
    const start = slider.value, box = slider.closest('.tp-play').id;
    const move = (to) => { slider.value = to; slider.dispatchEvent(new Event('input')); };
    for (const end of [slider.min, slider.max]) {
      move(end);
      const at = `${slider.dataset.input} at ${slider.nextElementSibling.textContent}`;
      found.push(...figures(`#${box} .tp-plot svg, #${box} .tp-rows svg`).map((line) => `${line} (${at})`));
    }
    move(start);
  }
  return found;
})()""".replace("FIGURES", FIGURES)
# A caption stands outside of the box that scrolls, and within the page.
CAPTIONS = """[...document.querySelectorAll('article caption, article .tp-table-caption')]
  .filter(caption => caption.closest('.tp-scroll')
    || caption.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(caption => caption.innerText.slice(0, 60))"""
# What a box hides of its own words is lost.
HIDDEN = """[...document.querySelectorAll('article :is(.admonition, .tp-chapter, .tp-question, .tp-play), .admonition-title')]
  .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 60))"""
# A display formula is broken into lines that fit.
FORMULAS = """[...document.querySelectorAll('article div.math')]
  .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 60))"""
# What was meant for the builder and stands on the page.
MARKUP = """(() => {
  const words = document.createTreeWalker(document.querySelector('article') ?? document.body, NodeFilter.SHOW_TEXT), found = [];
  while (words.nextNode())
    if (/\\{(glue|numref|term|cite|eq|py|math|ref|doc)[:a-z]*\\}/.test(words.currentNode.data) && !words.currentNode.parentElement.closest('pre'))
      found.push(words.currentNode.data.trim().slice(0, 60));
  return found;
})()"""
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.map(v => ({
  id: v.id, impact: v.impact, help: v.help,
  nodes: v.nodes.slice(0, 4).map(n => n.html.slice(0, 160) + '  <-  ' + (n.any[0] || n.all[0] || n.none[0] || {}).message)
}))))"""


def weight(asked: Iterable[str]) -> tuple[int, int]:
    """How many bytes the files have that a page asked for, each once: as they lie on the disk, and
    as a server sends them, compressed."""
    files = {Path(unquote(urlsplit(url).path)) for url in asked if url.startswith("file:")}
    contents = [path.read_bytes() for path in files if path.is_file()]
    return sum(map(len, contents)), sum(min(len(c), len(gzip.compress(c))) for c in contents)


def pages(names: list[str]) -> list[Path]:
    """The named pages (`book/index`, with or without .html), or all of the book's.
    FileNotFoundError if there are none."""
    if names:
        named = [HTML / (name.removesuffix(".html") + ".html") for name in names]
        if missing := [str(page) for page in named if not page.exists()]:
            raise FileNotFoundError(
                f"no page {', '.join(missing)}: build the book first, with tools/book.py"
            )
        return named
    extra = {HTML / "genindex.html", HTML / "py-modindex.html"}
    return sorted(
        p
        for p in HTML.rglob("*.html")
        if "_static" not in p.parts and p not in extra and p != HTML / "index.html"
    )


def look(tab: Browser, page: Path, view: str, out: Path | None, axe: str) -> list[str]:
    """Open one page in one view; the problems found, one line each."""
    tab.errors.clear()
    tab.outside.clear()
    tab.open(page.as_uri(), view)
    name = page.relative_to(HTML).with_suffix("").as_posix()
    if out:
        tab.picture(out / f"{name.replace('/', '-')}-{view}", view)
    found = [f"asks for {url}" for url in tab.outside] + [f"error: {text}" for text in tab.errors]
    if view == "light":
        heavy, sent = weight(tab.asked)
        print(f"{name} weighs {heavy / 1e6:.2f} MB, {sent / 1e6:.2f} MB compressed", flush=True)
        if heavy > HEAVIEST and name != "search":  # which reads its index
            found.append(f"weighs {heavy / 1e6:.2f} MB with all that it asks for")
    wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 1:
        found.append(f"the page scrolls sideways by {wide} px")
    found += tab.run(f"({FIGURES})('article svg')")
    found += [f"markup on the page: {text}" for text in tab.run(MARKUP)]
    found += [f"a caption is cut with its table: {text}" for text in tab.run(CAPTIONS)]
    found += [f"a box hides of its words: {text}" for text in tab.run(HIDDEN)]
    found += [f"a formula does not fit: {text}" for text in tab.run(FORMULAS)]
    if view.startswith("print"):
        found += [f"cut on paper: {text}" for text in tab.run(CUT)] + tab.run(PAPER)
    else:
        found += tab.run(ENDS)
    if view in ("light", "dark"):
        found += [f"a table scrolls on a wide screen: {text}" for text in tab.run(WIDE)]
    if axe and not view.startswith("print"):
        tab.run(axe)
        for violation in json.loads(tab.run(RUN_AXE)):
            found.append(f"axe {violation['id']} ({violation['impact']}): {violation['help']}")
            found += [f"    {node}" for node in violation["nodes"]]
    return [f"{name} [{view}] {problem}" for problem in found]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Screenshots, accessibility, errors and outside requests of the built book."
    )
    parser.add_argument("pages", nargs="*", help="such as book/index; all pages if none is given")
    parser.add_argument(
        "--views", default="light,dark,phone,print,print-dark", help=f"of {', '.join(VIEWS)}"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the screenshots; none are taken without it"
    )
    parser.add_argument("--no-axe", action="store_true", help="do not run axe-core")
    options = parser.parse_args()
    if not options.no_axe and not AXE.exists():
        print(
            f"axe-core is missing: run `npm install --prefix {AXE.parent.parent.parent}`, or pass"
            " --no-axe",
            file=sys.stderr,
        )
        return 2
    axe = "" if options.no_axe else AXE.read_text("utf8")
    try:
        asked = pages(options.pages)
    except FileNotFoundError as error:
        parser.error(str(error))
    problems = 0
    with browser() as tab:
        for page in asked:
            for view in options.views.split(","):
                for problem in look(tab, page, view, options.out, axe):
                    print(problem, flush=True)
                    problems += 1
    print(f"{problems} problems found." if problems else "No problem found.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
