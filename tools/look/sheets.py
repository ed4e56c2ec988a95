"""The built pages on A4, sheet by sheet: a heading or a title alone at the foot of a sheet, and
sheets of which more than a third is empty. Needs pdftoppm and pdftotext (poppler)."""

import argparse
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

import numpy as np
from chromium import Browser, browser
from look import HTML, pages

EMPTY = 1 / 3  # of the height between the margins
MARGIN_MM, HEIGHT_MM = 10, 297
TITLES = """[...document.querySelectorAll(
    'article :is(h1, h2, h3, p.rubric), .tp-mechanism-title, .tp-table-caption, .tp-play-title')]
  .map((title) => title.innerText.replace(/#$/, '').replace(/\\s+/g, ' ').trim())"""


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def sheets(pdf: Path) -> tuple[list[str], list[float]]:
    """Of each sheet its text, and the share that is empty at its foot."""
    text = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, check=True)
    texts = text.stdout.decode("utf8").split("\f")[:-1]
    subprocess.run(["pdftoppm", "-r", "25.4", "-gray", pdf, pdf.with_suffix("")], check=True)
    empty = []
    for picture in sorted(pdf.parent.glob(f"{pdf.stem}-*.pgm")):
        head, _, pixels = picture.read_bytes().partition(b"\n255\n")
        width, height = map(int, head.split()[1:3])
        gray = np.frombuffer(pixels, np.uint8).reshape(height, width)  # 25.4 dpi: a pixel a mm
        inked = np.flatnonzero((gray < 250).any(axis=1))
        last = inked[-1] + 1 if len(inked) else MARGIN_MM
        empty.append(1 - (last - MARGIN_MM) / (HEIGHT_MM - 2 * MARGIN_MM))
        picture.unlink()
    return texts, empty


def look(tab: Browser, page: Path, view: str, pdf: Path) -> list[str]:
    """Print one page; the problems found, one line each."""
    tab.open(page.as_uri(), view)
    titles = {squeezed(title) for title in tab.run(TITLES)} - {""}
    pdf.write_bytes(
        b64decode(tab.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
    )
    texts, empty = sheets(pdf)
    found = []
    for number, (text, share) in enumerate(zip(texts, empty, strict=True), 1):
        lines = [line for line in text.splitlines() if line.strip()]
        foot = {squeezed(" ".join(lines[-n:])) for n in (1, 2, 3)}
        if number < len(texts) and (alone := foot & titles):
            found.append(f"sheet {number}: a title alone at its foot: {min(alone)}")
        if number < len(texts) and share > EMPTY:
            found.append(
                f"sheet {number}: {share:.0%} of it is empty, after {lines[-1].strip()[:50]!r}"
            )
    name = page.relative_to(HTML).with_suffix("").as_posix()
    print(f"{name} [{view}] {len(texts)} sheets, {max(empty[:-1], default=0):.0%} empty at most")
    return [f"{name} [{view}] {line}" for line in found]


def main() -> int:
    parser = argparse.ArgumentParser(description="The built pages on A4, sheet by sheet.")
    parser.add_argument("pages", nargs="*", help="such as book/index; all pages if none is given")
    parser.add_argument("--views", default="print", help="print, print-dark")
    parser.add_argument("--out", type=Path, help="folder for the PDFs")
    options = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, browser() as tab:
        out = options.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        for page in pages(options.pages):
            for view in options.views.split(","):
                problems += look(tab, page, view, out / f"{page.stem}-{view}.pdf")
    print("\n".join(problems) if problems else "No problem found.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
