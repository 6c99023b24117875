#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Resets TCP connections of other processes, as root: reset_tcp.py ADDRESS[-PORT] PID...

Every connection of these processes with ADDRESS at one end is disconnected, which sends a reset to the other end; -PORT
spares those with this port. As `ss -K` does, for kernels that cannot (CONFIG_INET_DIAG_DESTROY)."""
import ctypes
import os
import socket
import struct
import sys

SYS_PIDFD_GETFD = 438  # the same on every architecture
libc = ctypes.CDLL(None, use_errno=True)


def is_meant(s, address, spared):
    if s.family != socket.AF_INET or s.type != socket.SOCK_STREAM:
        return False
    ends = (s.getsockname(), s.getpeername())
    return address in (e[0] for e in ends) and spared not in (e[1] for e in ends)


def reset(pid, address, spared):
    n = 0
    try:
        pidfd = os.pidfd_open(pid)
        names = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return 0  # it has ended
    for name in names:
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(name), 0)
        if fd < 0:
            continue
        try:
            s = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)  # no socket
            continue
        try:
            if is_meant(s, address, spared):
                # A connect() to AF_UNSPEC disconnects.
                n += libc.connect(fd, struct.pack("=H14x", socket.AF_UNSPEC), 16) == 0
        except OSError:
            pass  # not connected
        s.close()
    os.close(pidfd)
    return n


where, _, port = sys.argv[1].partition("-")
print(sum(reset(int(pid), where, int(port or 0)) for pid in sys.argv[2:]), "connections were reset")
