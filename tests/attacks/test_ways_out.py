"""Ways out of the box, tried for real: each ends inside, whatever the walls of the box are made of.

A way that leads out is printed. Around the box stands what a person's machine has: files, sockets and FIFOs in the
home folder, servers, shared memory and a process of the same user.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from omx_autoresearch.system.sandbox import Limits, run_limited
from tests.support.boxes import BOXES, take_box
from tests.support.needs import HAS_LANDLOCK, PYTHON, needs_user_namespaces

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the probes name system calls of x86-64"
)

NAME = f"omx-way-out-{os.getpid()}"
"""Of what a way would make or change outside; two processes may try at once."""
_TRY = """
import ctypes, fcntl, json, mmap, os, signal, socket, struct, subprocess, sys, time
home, pid, port, abstract, shm, other = sys.argv[1:]
pid, port, shm = int(pid), int(port), int(shm)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    got = libc.syscall(ctypes.c_long(number), *wide)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got
def out(happened=True):
    if happened:
        print(way, flush=True)
def attempt(code):
    try:
        exec(code, globals())
    except (Exception, SystemExit):
        pass
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for way, code in json.loads(os.environ["WAYS"]).items():
    child = os.fork()
    if not child:
        attempt(code)
    os.waitpid(child, 0)
    for name in os.listdir("."):
        if not name.startswith("."):
            subprocess.run(["rm", "-rf", name])
print("tried")
"""

WAYS = {
    "write a new file": "open(home + '/new', 'w').write('x'); out()",
    "write a file": "open(home + '/file', 'r+').write('x'); out()",
    "append to a file": "open(home + '/file', 'a').write('x'); out()",
    "cut a file": "os.truncate(home + '/file', 0); out()",
    "cut an open file": "os.ftruncate(os.open(home + '/file', os.O_RDONLY), 0); out()",
    "map a file": "mmap.mmap(os.open(home + '/file', os.O_RDWR), 0)[0:1] = b'x'; out()",
    "delete a file": "os.unlink(home + '/file'); out()",
    "move a file in": "os.rename(home + '/file', 'file'); out()",
    "move a file out": "open('mine', 'w').close(); os.rename('mine', home + '/mine'); out()",
    "exchange with a file": "open('mine', 'w').close(); "
    "call(316, -100, b'mine', -100, (home + '/file').encode(), 2); out()",
    "link a file in": "os.link(home + '/file', 'link'); open('link', 'w').write('x'); out()",
    "link a file by its descriptor": "fd = os.open(home + '/file', os.O_RDONLY); "
    "os.link(f'/proc/self/fd/{fd}', 'link', follow_symlinks=True); open('link', 'w').write('x'); out()",
    "write through a link": "os.symlink(home + '/file', 'link'); open('link', 'w').write('x'); out()",
    "write through /proc/self/root": "open('/proc/self/root' + home + '/file', 'w').write('x'); out()",
    "make a folder": "os.mkdir(home + '/folder'); out()",
    "replace the folder around": "os.rename('..', '../../gone'); out()",
    "make a device": "os.mknod('dev', 0o60600, os.makedev(254, 0)); out()",
    "write into the system": "open('/proc/sys/kernel/domainname', 'w').write('x'); out()",
    "a handler of crashes": "open('/proc/sys/kernel/core_pattern', 'a').close(); out()",
    "switches of the kernel": "open('/proc/sysrq-trigger', 'w').close(); out()",
    "a device's settings": "open('/sys/kernel/uevent_helper', 'w').close(); out()",
    "a control group": f"os.mkdir('/sys/fs/cgroup/{NAME}'); out()",
    "a program of the user for others": "place = home + '/scratch/mine'; open(place, 'w').close(); "
    "os.chmod(place, 0o4755); out()",
    "the same by descriptor": "os.fchmod(os.open(home + '/scratch/mine', os.O_CREAT | os.O_RDWR), 0o4755); out()",
    "hooks of git": "open('.git/hooks/post-checkout', 'w').write('x'); out()",
    "move git's folder away": "os.rename('.git', 'old'); out()",
    "settings of an agent": "os.mkdir('.claude'); open('.claude/settings.json', 'w').write('{}'); out()",
    "tasks of an editor": "os.mkdir('work'); open('work/tasks.json', 'w').close(); "
    "os.rename('work', '.vscode'); out()",
    "a file that the shell loads": "os.symlink('/etc/passwd', '.envrc'); out()",
    "tools of an agent": "open('.mcp.json', 'w').write('{}'); out()",
    "a socket in the home folder": "s = socket.socket(socket.AF_UNIX); s.connect(home + '/socket'); out()",
    "a socket by another name": "s = socket.socket(socket.AF_UNIX); "
    "s.connect('/proc/self/root' + home + '/socket'); out()",
    "a datagram socket in the home folder": "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
    "s.sendto(b'x', home + '/datagrams'); out()",
    "a datagram from a pair": "s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); "
    "s.sendto(b'x', home + '/datagrams'); out()",
    "a message from a pair": "s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); "
    "s.sendmsg([b'x'], [], 0, home + '/datagrams'); out()",
    "a sequenced pair": "s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
    "s.sendmsg([b'x'], [], 0, home + '/datagrams'); out(False)",
    "a pair connected anew": "s, _ = socket.socketpair(); s.connect(home + '/socket'); out()",
    "an abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + abstract); out()",
    "a server of the machine": "socket.create_connection(('127.0.0.1', port), 2); out()",
    "the network": "socket.create_connection(('192.0.2.1', 80), 1); out()",
    "a datagram to the machine": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    "s.sendto(b'x', ('127.0.0.1', port)); out(os.readlink('/proc/self/ns/net') == other)",
    "a virtual machine's host": "s = socket.socket(socket.AF_VSOCK); s.connect((2, 1)); out()",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW); out()",
    "a socket of io_uring": "call(425, 8, ctypes.create_string_buffer(120)); out()",
    "a FIFO in the home folder": "os.write(os.open(home + '/fifo', os.O_WRONLY | os.O_NONBLOCK), b'x'); out()",
    "a FIFO both ways": "os.write(os.open(home + '/fifo', os.O_RDWR | os.O_NONBLOCK), b'x')",
    "end a process": "os.kill(pid, signal.SIGTERM); out()",
    "end every process": "os.kill(-1, signal.SIGTERM)",
    "end a process by its descriptor": "signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGTERM); out()",
    "hold a process": "call(101, 16, pid, 0, 0); out()",
    "write a process's memory": "open(f'/proc/{pid}/mem', 'r+b').close(); out()",
    "write a process's memory by call": "b = ctypes.create_string_buffer(8); "
    "v = struct.pack('QQ', ctypes.addressof(b), 8); call(311, pid, v, 1, struct.pack('QQ', 4096, 8), 1, 0); out()",
    "a descriptor of a process": "call(438, os.pidfd_open(pid), 0, 0); out()",
    "the files of a process": "os.open(f'/proc/{pid}/fd/0', os.O_RDWR); out()",
    "the root of a process": "open(f'/proc/{pid}/root{home}/file', 'w').write('x'); out()",
    "limits of a process": "call(302, pid, 0, struct.pack('QQ', 1, 1), 0); out()",
    "a user namespace": "call(272, 0x10000000); out()",
    "a child in a user namespace": "out(call(56, 0x10000000 | 17, 0, 0, 0, 0) > 0)",
    "the older way into a namespace": "out(call(435, struct.pack('Q', 0x10000000) + bytes(80), 88) > 0)",
    "the namespaces of a process": "call(308, os.open(f'/proc/{pid}/ns/mnt', os.O_RDONLY), 0); out()",
    "a mount": "call(165, b'none', b'.', b'tmpfs', 0, 0); out()",
    "a tree of mounts": "call(428, -100, b'/', 1); out()",
    "a mount undone": "call(166, b'/', 2); out()",
    "writable mounts": "call(165, 0, b'/', 0, 32 | 4096, 0); out()",
    "another root": "os.chroot('.'); out()",
    "a file by its handle": "call(304, -100, bytes(16), 0); out()",
    "a key for the next run": "call(248, b'user', b'name', b'x', 1, -4); out()",
    "a key of an earlier run": "call(249, b'user', b'name', 0, -4); out()",
    "shared memory": "address = call(30, shm, 0, 0); out()",
    "shared memory by name": f"open('/dev/shm/{NAME}', 'r+').write('x'); out()",
    "new shared memory by name": f"open('/dev/shm/{NAME}-2', 'w').write('x')",
    "a file in /tmp": f"open('/tmp/{NAME}', 'w').write('x')",
    "input for a terminal": "import pty; a, b = pty.openpty(); fcntl.ioctl(b, 0x5412, b'x'); out()",
    "a bit in the page cache": "fd = os.open(sys.executable, os.O_RDONLY); "
    "b = bytearray(1); os.preadv(fd, [b], 0, os.RWF_NOWAIT); out()",
    "a look at the page cache": "fd = os.open(sys.executable, os.O_RDONLY); "
    "a = call(9, 0, 4096, 1, 2, fd, 0); call(27, a, 4096, ctypes.create_string_buffer(1)); out()",
    "a count of the page cache": "fd = os.open(sys.executable, os.O_RDONLY); "
    "call(451, fd, struct.pack('QQ', 0, 4096), ctypes.create_string_buffer(40), 0); out()",
    "a program of the kernel": "call(321, 0, bytes(128), 128); out()",
    "numbers of another table": "call(0x40000000 + 41, 1, 1, 0); out()",
}

WAYS_OF_NO_WRITE = {
    "the mode of a file": "os.chmod(home + '/file', 0o777); out()",
    "the times of a file": "os.utime(home + '/file', (1, 1)); out()",
    "a mark on a file": "os.setxattr(home + '/file', 'user.mark', b'x'); out()",
    "a FIFO drained": "fd = os.open(home + '/full', os.O_RDONLY | os.O_NONBLOCK); out(os.read(fd, 1))",
}
"""What Landlock does not count as a write; closed by mounts."""


class Machine(NamedTuple):
    """What stands around the box."""

    home: Path
    workspace: Path
    sleeper: subprocess.Popen[bytes]
    fifos: tuple[int, ...]
    arguments: tuple[str, ...]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A home folder outside of /tmp, with everything that could answer; all of it gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="omx-home-", dir="/var/tmp"))
    monkeypatch.setenv("HOME", str(home))
    workspace = home / "projects" / "workspace"
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (home / "scratch").mkdir()
    (home / "file").write_text("mine\n")
    sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)]
    sockets += [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    abstract = f"omx-way-out-{os.getpid()}"
    places: tuple[Any, ...] = (f"{home}/socket", f"{home}/datagrams", f"\0{abstract}", ("127.0.0.1", 0))
    for server, place in zip(sockets, places, strict=True):
        server.bind(place)
        if server.type == socket.SOCK_STREAM:
            server.listen()
    os.mkfifo(home / "fifo")
    os.mkfifo(home / "full")
    readers = [os.open(home / name, os.O_RDWR | os.O_NONBLOCK) for name in ("fifo", "full")]
    os.write(readers[1], b"secret")
    shared = Path("/dev/shm", NAME)
    shared.write_text("mine\n")
    sleeper = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    arguments = (
        str(home),
        str(sleeper.pid),
        str(sockets[3].getsockname()[1]),
        abstract,
        str(_shared_memory()),
        os.readlink("/proc/self/ns/net"),
    )
    yield Machine(home, workspace, sleeper, tuple(readers), arguments)
    sleeper.kill()
    sleeper.communicate()
    for server in sockets:
        server.close()
    for descriptor in readers:
        os.close(descriptor)
    shared.unlink()
    shutil.rmtree(home)


def _shared_memory() -> int:
    """System V shared memory that is gone when its last user detaches."""
    import ctypes

    libc = ctypes.CDLL(None)
    identity = libc.shmget(0, 4096, 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat(identity, None, 0)
    libc.shmctl(identity, 0, None)
    return int(identity)


def _ways_out(machine: Machine, ways: dict[str, str]) -> list[str]:
    """The ways that led out of the box of this machine, all tried in one run."""
    output = machine.home / "output"
    result = run_limited(
        (PYTHON, "-I", "-c", _TRY, *machine.arguments),
        Limits(str(machine.workspace), str(machine.home / "scratch")),
        cwd=str(machine.workspace),
        env={"PATH": os.environ["PATH"], "WAYS": json.dumps(ways)},
        timeout_seconds=60,
        output_path=str(output),
    )
    *found, last = output.read_text().splitlines()
    output.unlink()
    assert (result.outcome, last) == ("exited", "tried")
    return found


def _state(machine: Machine) -> object:
    """What nothing in the box may change."""
    status = (machine.home / "file").stat()
    return (
        (machine.home / "file").read_text(),
        (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_nlink),
        sorted(entry.name for entry in machine.home.iterdir()),
        sorted(entry.name for entry in machine.workspace.iterdir() if entry.name.startswith(".")),
        [str(path) for path in machine.workspace.rglob(".git/**/*")],
        Path("/dev/shm", NAME).read_text(),
        [os.path.exists(path) for path in (f"/dev/shm/{NAME}-2", f"/tmp/{NAME}")],
        machine.sleeper.poll(),
        [fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)) for descriptor in machine.fifos],
    )


@needs_user_namespaces
@pytest.mark.parametrize("kind", BOXES)
def test_no_way_leads_out_of_the_box(machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    take_box(monkeypatch, kind)
    before = _state(machine)

    assert _ways_out(machine, WAYS | WAYS_OF_NO_WRITE) == []
    assert _state(machine) == before


@pytest.mark.skipif(not HAS_LANDLOCK, reason="the kernel has no Landlock")
def test_no_way_leads_out_where_the_system_grants_no_mounts_either(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "landlock without mounts")
    before = _state(machine)

    assert _ways_out(machine, WAYS) == []
    assert _state(machine) == before


def test_the_ways_themselves_lead_out_where_there_is_no_box(machine: Machine) -> None:
    ways = ("write a file", "a socket in the home folder", "a user namespace", "the mode of a file")
    said = subprocess.run(
        (PYTHON, "-I", "-c", _TRY, *machine.arguments),
        env={"WAYS": json.dumps({way: {**WAYS, **WAYS_OF_NO_WRITE}[way] for way in ways})},
        capture_output=True,
        cwd=machine.workspace,
        check=False,
    ).stdout

    assert said.decode().splitlines() == [*ways, "tried"]
