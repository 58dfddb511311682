"""Edge: `python -m tests.support.confined UNIT COMMAND...`: run a command as far as a process can confine itself as systemd
would by a unit: its system calls, no memory that is written and executed, and no privileges to gain.

The groups of system calls are those of `systemd-analyze syscall-filter`.
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS, PR_SET_MDWE = 38, 65
SCMP_ACT_ALLOW, REFUSED = 0x7FFF_0000, 0x0005_0001
"""What libseccomp does with a call: let it pass, or fail it with EPERM."""


def calls_of(group: str) -> set[str]:
    """Return the system calls of a group, with those of the groups in it."""
    asked = ["systemd-analyze", "syscall-filter", "--no-pager", group]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    words = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    groups = [calls_of(word) for word in words if word.startswith("@")]
    return {word for word in words if not word.startswith("@")}.union(*groups)


def allowed(unit: str) -> set[str]:
    """Return the system calls that a unit allows."""
    left: set[str] = set()
    for takes_away, groups in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit, re.MULTILINE):
        for group in groups.split():
            left = left - calls_of(group) if takes_away else left | calls_of(group)
    return left


def confine(unit: str) -> None:
    """Confine this process, and what it becomes, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if "\nMemoryDenyWriteExecute=yes\n" in unit and libc.prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0:
        print("this kernel cannot deny memory that is written and executed (6.3 can)", file=sys.stderr)
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    ]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    rules = lib.seccomp_init(REFUSED)
    for name in sorted(allowed(unit)):
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # those of other architectures have none here
            assert lib.seccomp_rule_add_array(rules, SCMP_ACT_ALLOW, number, 0, None) == 0, name
    assert lib.seccomp_load(rules) == 0


if __name__ == "__main__":
    confine(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.execv(sys.argv[2], sys.argv[2:])
