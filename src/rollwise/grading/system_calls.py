"""A filter of system calls (seccomp) for untrusted programs.

A limit on address space does not count memory that the kernel holds for a process: files in memory,
System V's shared memory, large socket buffers, pages left in pipes, or a file system in memory that
was mounted in a namespace of one's own. Programs have no use for these, so the calls that
create them fail, as in Flatpak's filter; so do calls into parts of the kernel that often had flaws.
"""

import errno
import platform
import socket
import struct
import sys

_DENIED = {  # name: (number on x86_64, on aarch64)
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "setsockopt": (54, 208),
    "vmsplice": (278, 75),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "process_vm_writev": (311, 271),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_MACHINES = ("x86_64", "aarch64")
_AF_NETLINK = 16
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
_OTHER_ABI = 0x40000000  # x32's calls, on x86_64

# Classic BPF: load a word, jump if equal, if at least, if any bit is set, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in `struct seccomp_data`, little-endian
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program() -> bytes | None:
    """Return the filter as the kernel takes it, one `struct sock_filter` after another.

    None for machines whose system calls are not listed here.
    """
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _MACHINES or sys.maxsize < 2**32:
        return None
    i = _MACHINES.index(machine)
    denied = _FAIL | errno.EPERM
    steps = [
        (_LOAD, 0, 0, _ARCH),
        *((_EQUAL, 1, 0, _AUDIT_ARCH[i]), (_RETURN, 0, 0, _KILL)),
        (_LOAD, 0, 0, _NUMBER),
        *((_AT_LEAST, 0, 1, _OTHER_ABI), (_RETURN, 0, 0, denied)),
    ]
    for numbers in _DENIED.values():
        steps += [(_EQUAL, 0, 1, numbers[i]), (_RETURN, 0, 0, denied)]
    # A filter cannot read clone3's arguments; told that it is missing, C libraries use clone.
    steps += [(_EQUAL, 0, 1, _CLONE3[i]), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
    steps += [
        *((_EQUAL, 0, 4, _CLONE[i]), (_LOAD, 0, 0, _FIRST_ARGUMENT)),
        *((_ANY_BIT, 0, 1, _NEW_NAMESPACES), (_RETURN, 0, 0, denied), (_RETURN, 0, 0, _ALLOW)),
    ]
    # Sockets of TCP hold megabytes each. Python lists network interfaces by netlink.
    steps += [
        *((_EQUAL, 0, 4, _SOCKET[i]), (_LOAD, 0, 0, _FIRST_ARGUMENT)),
        *((_EQUAL, 2, 0, socket.AF_UNIX), (_EQUAL, 1, 0, _AF_NETLINK), (_RETURN, 0, 0, denied)),
    ]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
