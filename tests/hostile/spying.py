"""Attempts to see what is hidden: files, memory, other processes. Each would answer rightly if it saw anything."""

from __future__ import annotations

from hostile.attack import ROOT, Hostile, breach

# a text that the judge's process has in its memory, its environment and its command's files; no cell has it in one piece
MARK = "only-the-judge-knows-" + "4f1c" * 4
PATTERN = "'only-the-judge-' + 'knows-' + '4f1c' * 4"

FILES = [
    ROOT / "tests/hostile/course.py",
    ROOT / "lib/twophase/checks/kv_cache/kv_bytes.py",
    ROOT / "lib/twophase/checks/registry.py",
    ROOT / "lib/twophase/theory/kv_cache.py",
    ROOT / "solutions/03_kv_cache.ipynb",
    ROOT / "exercises/03_kv_cache.ipynb",
    ROOT / "tests/answers/kv_cache",
    ROOT / "lib/twophase/checks/__pycache__",
    ROOT / "pyproject.toml",
]
READERS = {  # ways to read a file or a folder; each gives something true if it could (names alone within the package are no secret)
    "open": "open(path).read()",
    "os.open": "os.read(os.open(path, os.O_RDONLY), 9)",
    "a folder's list": (
        "'/lib/' not in path and os.listdir(path if os.path.isdir(path) else os.path.dirname(path))"
    ),
    "os.scandir": "'/lib/' not in path and [e.name for e in os.scandir(os.path.dirname(path))]",
    "glob": "'/lib/' not in path and __import__('glob').glob(os.path.dirname(path) + '/*')",
    "runpy": "__import__('runpy').run_path(path)",
    "linecache": "__import__('linecache').getlines(path)",
    "pkgutil": "__import__('pkgutil').get_data('twophase', 'checks/registry.py')",
    "importlib.resources": (
        "__import__('importlib.resources').resources.files('twophase').joinpath('checks/registry.py').read_text()"
    ),
    "a loader of sources": (
        "__import__('importlib.machinery').machinery.SourceFileLoader('x', path).load_module()"
    ),
    "a loader of bytecode": (
        "[__import__('importlib.machinery').machinery.SourcelessFileLoader('x', p).load_module() "
        "for p in __import__('glob').glob(os.path.dirname(path) + '/__pycache__/*.pyc')]"
    ),
    "zipimport": "__import__('zipimport').zipimporter(path).get_source('x')",
    "mmap": "__import__('mmap').mmap(os.open(path, 0), 0, prot=1)[:9]",
    "numpy": "np.fromfile(path, 'u1', 9).size or np.memmap(path, 'u1', 'r').size",
    "torch": "__import__('torch').from_file(path, size=9, dtype=__import__('torch').uint8).sum()",
    "sqlite": (
        "__import__('sqlite3').connect(f'file:{path}?mode=ro', uri=True).execute('select * from"
        " sqlite_master').fetchall()"
    ),
    "libc": "__import__('ctypes').CDLL(None).fopen(path.encode(), b'r')",
    "a system call": "__import__('ctypes').CDLL(None).syscall(257, -100, path.encode(), 0) > 0",
    "sendfile": "os.sendfile(os.open('x', os.O_RDWR | os.O_CREAT), os.open(path, 0), 0, 9)",
    "a symbolic link": "[os.symlink(path, f'{id(path)}'), open(f'{id(path)}').read()]",
    "a hard link": "[os.link(path, f'{id(path)}'), open(f'{id(path)}').read()]",
    "a new name": "os.rename(path, path + '~')",
    "a copy": "__import__('shutil').copy(path, '.')",
    "/proc/self/root": "open('/proc/self/root' + path).read()",
    "/proc of the parent": (
        "open(f'/proc/{os.getppid()}/root' + path).read() or"
        " os.listdir(f'/proc/{os.getppid()}/cwd/')"
    ),
    "another root": "[os.chroot('/'), open(path).read()]",
    "%run": (
        "not get_ipython().run_line_magic('run', path) and 'EXERCISES' in get_ipython().user_ns"
    ),
    "a subprocess": "__import__('subprocess').check_output(['cat', path])",
    "a shell": "os.popen(f'cat {path}').read()",
    "a spawned process": "os.waitpid(os.posix_spawn('/bin/cat', ['cat', path], {}), 0)[1] == 0",
}
IN_PYTHON = {  # roads within the process
    "twophase.checks": "import twophase.checks.kv_cache.kv_bytes as m; return m.EXERCISE",
    "the checks without the finder": (
        "for f in [f for f in sys.meta_path if type(f).__module__[:8] == 'twophase']:"
        " sys.meta_path.remove(f)\nimport twophase.checks.registry as r; return"
        " r.load('kv_cache-kv_bytes')"
    ),
    "the checks by their spec": (
        "import importlib.machinery as m, twophase\nreturn"
        " m.PathFinder.find_spec('twophase.checks.registry', [p + '/checks' for p in"
        " twophase.__path__]).loader.get_code('twophase.checks.registry')"
    ),
    "the lab's checking": (
        "from twophase.lab.checking import exercise_of; return exercise_of('kv_cache-kv_bytes')"
    ),
    "the lab's solutions": (
        "from twophase.lab.showing import author_answer; return author_answer('kv_cache-kv_bytes',"
        " True)"
    ),
    "solution()": "return solution('kv_cache-kv_bytes', give_up=True)",
    "solution() outside the worker": (
        "import twophase.lab as lab; lab.IN_WORKER = False; return"
        " lab.solution('kv_cache-kv_bytes', give_up=True)"
    ),
    "hint() outside the worker": (
        "import twophase.lab as lab; lab.IN_WORKER = False; return lab.hint('kv_cache-kv_bytes')"
    ),
    "check() outside the worker": (
        "import twophase.lab as lab; lab.IN_WORKER = False; return lab.check('kv_cache-kv_bytes')"
    ),
    "its distribution's files": (
        "import importlib.metadata as m; return [f.read_text() for f in m.files('twophase') if"
        " 'check' in str(f)][0]"
    ),
    "every path of sys.path": (
        "import glob; return [open(f).read() for p in sys.path for f in glob.glob(p +"
        " '/twophase/checks/*.py') + glob.glob(p + '/*/twophase/checks/*.py')]"
    ),
    "sys.modules": (
        "return [n for n in sys.modules if n[:15] in ('twophase.checks', 'hostile.course')]"
    ),
    "the garbage collector": (
        "import gc; gc.unfreeze()\nreturn [o for o in gc.get_objects() if type(o).__name__ in"
        " ('Exercise', 'Bench', 'Case', 'SubmissionJudge', 'Release') and"
        " type(o).__module__.split('.')[1:2] in (['checks'], ['grading'], ['course'])]"
    ),
    "the garbage collector's modules": (
        "import gc; gc.unfreeze(); return [o for o in gc.get_objects() if type(o) is type(sys) and"
        " 'twophase.checks' in o.__name__]"
    ),
    "the stack": (
        "f = sys._getframe()\nwhile f:\n    if {'expected', 'case', 'bench', 'reference'} &"
        " set(f.f_locals): return True\n    f = f.f_back"
    ),
    "all threads' stacks": (
        "return [f for f in sys._current_frames().values() if 'expected' in f.f_locals]"
    ),
    "subclasses of object": (
        "return [c for c in object.__subclasses__() if c.__module__[:15] == 'twophase.checks']"
    ),
    "its own descriptors": (
        "return [n for n in os.listdir('/proc/self/fd') if os.path.isfile(f'/proc/self/fd/{n}')]"
    ),
    "source by inspect": (
        "import inspect, twophase.theory.kv_cache as m; return inspect.getsource(m)"
    ),
    "its history": (
        "return [s for s in In if 'expected' in s] or get_ipython().history_manager.get_tail(1)[0]"
    ),
}
BEYOND = {  # other processes and the machine
    "its environment": f"return any({PATTERN} in v for v in os.environ.values())",
    "others' environments": f"return any(({PATTERN}).encode() in open(f'/proc/{{p}}/environ', 'rb').read() for p in others())",
    "others' memory": "return any(open(f'/proc/{p}/mem', 'rb') for p in others())",
    "others' maps": "return any(open(f'/proc/{p}/maps').read() for p in others())",
    "others' descriptors": "return [os.listdir(f'/proc/{p}/fd') for p in others()]",
    "others' folders": "return [os.listdir(f'/proc/{p}/cwd/') for p in others()]",
    "its parent's memory by a system call": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nclass V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "mine = ctypes.create_string_buffer(8); here = V(ctypes.addressof(mine), 8); there = V(id(None), 8)\n"
        "return libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0"
    ),
    "its parent by ptrace": "import ctypes\nreturn ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "its parent's descriptors by a system call": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nfd = os.pidfd_open(os.getppid())\n"
        "return any(libc.syscall(438, fd, n, 0) >= 0 for n in range(64))"
    ),
    "its own memory": (
        f"needle = ({PATTERN}).encode()\nseen = 0\n"
        "for line in open('/proc/self/maps'):\n    span, mode = line.split()[:2]\n"
        "    a, b = (int(x, 16) for x in span.split('-'))\n"
        "    if mode[0] == 'r' and b - a < 10**8 and '[heap]' in line:\n"
        "        with open('/proc/self/mem', 'rb') as m:\n            m.seek(a); seen += needle in m.read(b - a)\nreturn seen > 1"
    ),
    "the kernel's memory": "return open('/dev/mem', 'rb') or open('/proc/kcore', 'rb').read(9)",
    "the kernel's log": "return open('/dev/kmsg').readline()",
    "keys of the kernel": "import ctypes\nreturn ctypes.CDLL(None).syscall(248, b'user', b'x', b'y', 1, -3) > 0",
    "the folder above": "return os.listdir('..')",
    "temporary files": "return os.listdir('/tmp') or os.listdir('/var/tmp')",
    "home folders": "return os.listdir('/root') or os.listdir('/home')",
    "the whole disk": "return [n for n in os.listdir('/') if os.access('/' + n, os.R_OK) and os.listdir('/')]",
    "password hashes": "return open('/etc/shadow').read()",
    "keys of the machine": "return [open(f'/etc/ssh/{n}').read() for n in os.listdir('/etc/ssh') if n[-4:] == '_key'] or open('/etc/ssl/private/x')",
}  # fmt: skip
OTHERS = (
    "def others():\n    mine = os.getpid()\n    return [p for p in os.listdir('/proc') if"
    " p.isdigit() and int(p) != mine]\n"
)
# what Landlock alone does not close
NEEDS = {"keys of the kernel": "seccomp"}


def _reading(name: str, way: str) -> Hostile:
    body = (
        f"seen = []\nfor path in {[str(f) for f in FILES]}:\n    try:\n        if {way}:"
        " seen.append(path)\n    except (Exception, SystemExit): pass\nreturn seen"
    )
    return breach(f"reads by {name}", body, needs="landlock")


SPYING = [
    *(_reading(name, way) for name, way in READERS.items()),
    *(breach(f"looks into {name}", body, needs="landlock") for name, body in IN_PYTHON.items()),
    *(
        breach(f"looks at {name}", OTHERS + body, needs=NEEDS.get(name, "landlock"))
        for name, body in BEYOND.items()
    ),
]
