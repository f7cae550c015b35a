"""Hold a network namespace open and hand its one listening socket out. Started by ``network.py`` inside ``unshare``.

    python -I namespace_holder.py FD

FD is a Unix socket. Brings ``lo`` up, binds 127.0.0.1 to a free port, sends the listening socket over FD and then
lives until FD is closed, so that the namespace ends with the test.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
"""ioctl numbers of <linux/sockios.h>: read and set an interface's flags."""
IFF_UP = 1
"""<linux/if.h>."""


def bring_loopback_up() -> None:
    """Do what ``ip link set lo up`` does, without needing iproute2."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        _, flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def main() -> None:
    """Serve one namespace until the other end is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    bring_loopback_up()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(control, [b"."], [listener.fileno()])
    control.recv(1)


if __name__ == "__main__":
    main()
