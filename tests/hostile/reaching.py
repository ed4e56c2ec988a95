"""Attempts to reach out: the network, other processes, files that outlive the submission. Most would answer rightly if they did."""

from __future__ import annotations

from hostile.attack import ROOT, breach, in_own_cell

PLACES = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/run",
    "/usr/local",
    "/root",
    str(ROOT),
    f"{ROOT}/lib/twophase",
    "..",
    "/proc/self",
    "/etc",
)
SOCKETS = {  # each gives something true if a word could leave the process
    "TCP": "import socket; return socket.create_connection(('127.0.0.1', 22), 0.2)",
    "a listener": "import socket; return socket.create_server(('127.0.0.1', 0))",
    "UDP": (
        "import socket; return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x',"
        " ('127.0.0.1', 9))"
    ),
    "UDP of version 6": (
        "import socket; return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x',"
        " ('::1', 9))"
    ),
    "raw packets": "import socket; return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packets": "import socket; return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "import socket; return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "the kernel's ciphers": (
        "import socket; return socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"
    ),
    "a local socket by name": (
        "import socket; s = socket.socket(socket.AF_UNIX);"
        " s.bind('\\0left-behind-by-a-submission'); s.listen(); return s"
    ),
    "a local socket in a file": (
        "import socket; s = socket.socket(socket.AF_UNIX);"
        " s.bind('/tmp/left-behind-by-a-submission'); return s"
    ),
    "virtual machines": "import socket; return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "names": "import socket; return socket.getaddrinfo('example.com', 80)",
    "a page": (
        "import urllib.request; return urllib.request.urlopen('http://127.0.0.1:9/', timeout=0.2)"
    ),
    "asyncio": (
        "import asyncio; return asyncio.run(asyncio.start_server(print, '127.0.0.1', 0)).sockets"
    ),
    "torch.distributed": (
        "import torch.distributed as d, datetime\n"
        "return d.TCPStore('127.0.0.1', 0, 1, True, timeout=datetime.timedelta(seconds=0.3))"
    ),
    "torch.hub": (
        "import torch; return torch.hub.load_state_dict_from_url('http://127.0.0.1:9/x',"
        " model_dir='.')"
    ),
    "io_uring": (
        "import ctypes; b = ctypes.create_string_buffer(120); return ctypes.CDLL(None).syscall(425,"
        " 4, b) > 0"
    ),
}
KERNEL = {
    "shared memory of System V": (
        "import ctypes; return ctypes.CDLL(None).shmget(0x7707, 4096, 0o1666) >= 0"
    ),
    "message queues": "import ctypes; return ctypes.CDLL(None).msgget(0x7707, 0o1666) >= 0",
    "semaphores": "import ctypes; return ctypes.CDLL(None).semget(0x7707, 1, 0o1666) >= 0",
    "a message queue by name": (
        "import ctypes; return ctypes.CDLL('librt.so.1').mq_open(b'/left-behind-by-a-submission',"
        " 0o102, 0o600, None) >= 0"
    ),
    "a mount": (
        "import ctypes; return ctypes.CDLL(None).mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0"
    ),
    "a namespace": "import ctypes; return ctypes.CDLL(None).unshare(0x10000000) == 0",
    "another user": "return os.getuid() != 0 and not os.setuid(0)",
    "the clock": "import time; return time.clock_settime(time.CLOCK_REALTIME, time.time()) is None",
    "priority": "return os.nice(-5) < 0",
    "BPF": (
        "import ctypes; return ctypes.CDLL(None).syscall(321, 0, ctypes.create_string_buffer(72),"
        " 72) >= 0"
    ),
    "perf": (
        "import ctypes; return ctypes.CDLL(None).syscall(298, ctypes.create_string_buffer(112), 0,"
        " -1, -1, 0) >= 0"
    ),
    "userfaultfd": "import ctypes; return ctypes.CDLL(None).syscall(323, 0) >= 0",
    "the terminal": "import fcntl; return open('/dev/tty', 'w') or open('/dev/ptmx', 'r+')",
    "a signal to the judge": "return os.kill(os.getppid(), 0) is None",
}
OPEN_WITHOUT = {"UDP", "UDP of version 6", "netlink", "the kernel's ciphers", "a local socket by name", "virtual machines", "io_uring",
                "shared memory of System V", "message queues", "semaphores", "a message queue by name", "userfaultfd", "a namespace"}  # fmt: skip

ORPHANS = """import os, threading
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: threading.Event().wait()
    os._exit(0)"""
PROCESSES = {
    "orphans": ORPHANS,
    "forks and goes on": "import os; os.fork()",
    "a small fork bomb": "import os\nfor _ in range(5): os.fork()\nimport time; time.sleep(0.05)",
    "a process of multiprocessing": "import multiprocessing as m, threading; m.Process(target=threading.Event().wait).start()",
    "a pool": "import concurrent.futures as f\nlist(f.ProcessPoolExecutor(2).map(abs, [1]))",
    "a daemon": "import os\nif not os.fork():\n    os.setsid()\n    os.closerange(0, 64)\n    while True: pass",
    "a subprocess": "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "a shell": "import os; os.system('sleep 1000 &')",
    "a spawned process": "import os; os.posix_spawn('/bin/sleep', ['sleep', '1000'], {})",
    "vfork": "import ctypes; ctypes.CDLL(None).syscall(58) == 0 and ctypes.CDLL(None)._exit(0)",
    "clone": "import ctypes\nif ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) == 0:\n    while True: pass",
    "a program from memory": "import os; fd = os.memfd_create('x'); os.write(fd, b'#!/bin/sleep 1000\\n'); os.fork() or os.execve(fd, ['x'], {})",
    "%%bash": "%%bash --bg\nsleep 1000",
    "kills its parent": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "kills everybody": "import os, signal\nfor p in os.listdir('/proc'):\n    if p.isdigit() and int(p) not in (os.getpid(), 1):\n        try: os.kill(int(p), signal.SIGKILL)\n        except OSError: pass",
    "stops its parent": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "another parent's death": "import ctypes; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)",
    "a subreaper of its own": f"import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n{ORPHANS}",
}  # fmt: skip
SIGNALS = (
    "kills its parent",
    "kills everybody",
    "stops its parent",
)  # safe to try only where the kernel forbids it

REACHING = [
    *(breach(f"speaks {name}", body, needs="seccomp" if name in OPEN_WITHOUT else "tcp") for name, body in SOCKETS.items()),
    *(breach(f"asks the kernel for {name}", body, needs="seccomp" if name in OPEN_WITHOUT else "") for name, body in KERNEL.items()),
    *(
        breach(f"writes to {place.replace(str(ROOT), 'the course')}", f"return open({place + '/left-behind-by-a-submission'!r}, 'w')", needs="landlock")
        for place in PLACES
    ),
    breach("writes into the libraries", "import numpy; return open(os.path.dirname(numpy.__file__) + '/left-behind-by-a-submission', 'w')", needs="landlock"),
    breach("writes bytecode", "import numpy; return open(os.path.dirname(numpy.__file__) + '/__pycache__/left-behind-by-a-submission.pyc', 'w')", needs="landlock"),
    breach("writes a file without a name", "return os.open('/tmp', os.O_TMPFILE | os.O_RDWR)", needs="landlock"),
    *(in_own_cell(f"starts {name}", source, needs="signals" if name in SIGNALS else "") for name, source in PROCESSES.items()),
]  # fmt: skip
