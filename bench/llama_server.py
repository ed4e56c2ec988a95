"""llama.cpp's own server, `llama-server`, as a peer: a process of its own that is sent all requests
at once over HTTP and shares its passes among as many slots as there are seats.

The Python package does not have it; its sources do (`bench/README.md` says how it is built).
"""

from __future__ import annotations

import atexit
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import torch
from decode_peers import Missing, write_gguf
from serving_peers import CHUNK, Answers, Serve

from twophase.models.transformer import Transformer
from twophase.serving.workload import Arrival

NAME = "llama-server"
HOST = "127.0.0.1"
START_S = 120.0
_servers: list[psutil.Process] = []


def process_time() -> float:
    """Seconds of processor time of this process and of the servers that it started: a server's
    work is done there."""
    theirs = (one.cpu_times() for one in _servers if one.is_running())
    return time.process_time() + sum(times.user + times.system for times in theirs)


def llama_server(model: Transformer, most: int, seats: int, binary: str | None = None) -> Serve:
    """llama.cpp's server on these weights, with a slot for each seat; `binary` where it is not on
    the PATH. Raises Missing without it, without `gguf`, and where it does not start."""
    found = shutil.which(binary or NAME)
    if found is None:
        where = "on the PATH" if binary is None else f"at {binary}"
        raise Missing(
            f"it is skipped, since there is no {NAME} {where}: build that target of llama.cpp"
            " (bench/README.md), and name it with --llama-server PATH."
        )
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise Missing("it is skipped, since gguf is not installed: pip install gguf.") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(model, path, vocabulary=True)
        fp32 = model.embed_tokens.weight.dtype != torch.bfloat16
        port = _start(found, path, most + 16, seats, "f32" if fp32 else "bf16")

    def serve(asked: Sequence[Arrival]) -> Answers:
        with ThreadPoolExecutor(len(asked)) as crowd:
            return list(crowd.map(lambda one: _answer(port, one), asked))

    return serve


def _start(binary: str, path: Path, most: int, seats: int, kind: str) -> int:
    """Start it, wait until the weights are read, and give its port."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = int(free.getsockname()[1])
    threads = str(torch.get_num_threads())
    options = {
        "-m": path, "--host": HOST, "--port": port, "-t": threads, "-tb": threads, "-np": seats,
        "-c": seats * most, "-b": CHUNK, "-ub": CHUNK, "-ctk": kind, "-ctv": kind,
        "--threads-http": 64, "--cache-ram": 0, "--fit": "off", "-lv": 0,
    }  # fmt: skip
    switches = ["-cb", "-no-kvu", "--no-cache-prompt", "--no-slots", "--offline"]
    words = [str(word) for pair in options.items() for word in pair]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([binary, *words, *switches], **quiet)
    atexit.register(_stop, server)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is registered runs
    _servers.append(psutil.Process(server.pid))
    _wait(server, port)
    return port


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers. Raises Missing if it ends, or takes too long."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise Missing(f"{NAME} ended with status {server.returncode} before it answered.")
        try:
            if _ask(port, "GET", "/health")[0] == http.client.OK:
                return
        except OSError:
            pass  # nobody listens yet
        time.sleep(0.1)
    _stop(server)
    raise Missing(f"{NAME} did not answer within {START_S:.0f} s.")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


def _answer(port: int, one: Arrival) -> list[int]:
    """The tokens of one answer, as long as was asked for."""
    body = {
        "prompt": list(one.prompt), "n_predict": one.n_output, "temperature": 0.0,
        "ignore_eos": True, "cache_prompt": False, "return_tokens": True,
    }  # fmt: skip
    status, said = _ask(port, "POST", "/completion", json.dumps(body))
    if status != http.client.OK:
        raise Missing(f"{NAME} answers with status {status}: {said[:200]!r}.")
    return list(json.loads(said)["tokens"])


def _ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    """One request of HTTP: the status, and what was said."""
    line = http.client.HTTPConnection(HOST, port, timeout=600)
    try:
        line.request(method, path, body, {"Content-Type": "application/json"})
        found = line.getresponse()
        return found.status, found.read()
    finally:
        line.close()
