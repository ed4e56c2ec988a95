"""Chromium and one tab of it, driven over its DevTools protocol through a pipe, without a library.

The network is off: what a page asks for outside of this machine is noted, and fails.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--allow-file-access-from-files",
]
VIEWS = {
    "light": (1280, 900, "light"),
    "dark": (1280, 900, "dark"),
    "phone": (390, 844, "light"),
    "phone-dark": (390, 844, "dark"),
    "phone-360": (360, 740, "light"),
    "print": (718, 1000, "light"),  # A4 between its margins; a PDF instead of screenshots
    "print-dark": (718, 1000, "dark"),  # the same, printed by somebody who reads in the dark
}
TALLEST = 4000  # pixels of one screenshot
SETTLE = """document.fonts.ready.then(() => new Promise(r => setTimeout(r, 150)))"""


class Browser:
    """Chromium and one tab of it. `errors` and `outside` fill while pages load."""

    def __init__(self, program: str, profile: str) -> None:
        to_chrome, self._out = os.pipe()
        self._in, from_chrome = os.pipe()

        def wire() -> None:  # Chromium reads commands on 3 and answers on 4.
            os.dup2(to_chrome, 60)
            os.dup2(from_chrome, 61)
            os.dup2(60, 3)
            os.dup2(61, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=wire,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_chrome)
        os.close(from_chrome)
        self._buffer = b""
        self._last = 0
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.asked: list[str] = []  # of this page, itself included
        self.loaded = False
        target = self._send("Target.getTargets", {}, None)["targetInfos"]
        page = next(item["targetId"] for item in target if item["type"] == "page")
        self.session: str = self._send(
            "Target.attachToTarget", {"targetId": page, "flatten": True}, None
        )["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._send(method, params, self.session)

    def _send(self, method: str, params: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._event(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _event(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(
                details.get("exception", {}).get("description", details["text"])[:300]
            )
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            self.asked.append(url)
            if not url.startswith(
                ("file:", "data:", "about:", "blob:", "http://127.0.0.1", "http://localhost")
            ):
                self.outside.append(url)
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"][:300] + " " + params["entry"].get("url", ""))

    def open(self, url: str, view: str) -> None:
        width, height, scheme = VIEWS[view]
        phone = width < 500
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            media="print" if view.startswith("print") else "",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.loaded = False
        self.asked.clear()
        self.send("Page.navigate", url=url)
        while not self.loaded:
            self._event(self._read())
        self.run(SETTLE)

    def run(self, script: str) -> Any:
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(
                str(answer["exceptionDetails"].get("exception", {}).get("description"))
            )
        return answer["result"].get("value")

    def picture(self, path: Path, view: str) -> None:
        """The whole page as `<path>-1.png` and so on, from top to bottom; in print as a PDF."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if view.startswith("print"):
            done = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
            path.with_name(f"{path.name}.pdf").write_bytes(base64.b64decode(done["data"]))
            return
        width, _, _ = VIEWS[view]
        height = int(self.run("document.documentElement.scrollHeight"))
        size = {"width": width, "deviceScaleFactor": 1, "mobile": width < 500}
        tall = min(TALLEST, height)
        self.send("Emulation.setDeviceMetricsOverride", height=tall, **size)
        for number, top in enumerate(range(0, height, tall), 1):
            self.run(f"window.scrollTo(0, {top}), new Promise(done => setTimeout(done, 150))")
            shot = self.send("Page.captureScreenshot", format="png")
            path.with_name(f"{path.name}-{number}.png").write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        try:
            self._send("Browser.close", {}, None)
        except (RuntimeError, OSError):
            self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)


@contextmanager
def browser() -> Iterator[Browser]:
    """A fresh Chromium with its own profile, gone at the end. Raises FileNotFoundError where there
    is none."""
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None:
        raise FileNotFoundError("no chromium, chromium-browser or google-chrome on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        tab = Browser(program, profile)
        try:
            yield tab
        finally:
            tab.close()
