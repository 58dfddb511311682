"""Edge: whether a Python was built with optimisations: guided by a profile, and no debug build.

`ops/setup.sh` runs this file with each Python that it finds, so it needs nothing but the standard library.
Tests: tests/unit/ops/test_setup.py.
"""

import platform
import sys
import sysconfig


def is_optimised() -> bool:
    """Answer whether the Python that runs this is guided by a profile, as far as it records how it was built."""
    if sysconfig.get_config_var("Py_DEBUG"):
        return False
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    # Debian and Ubuntu build with a profile without this option. Their own scheme of paths tells their builds apart.
    is_of_debian = sys.base_prefix == "/usr" and "deb_system" in sysconfig.get_scheme_names()
    return "--enable-optimizations" in options or is_of_debian


def described() -> str:
    """Return the version and the build of the Python that runs this, for people."""
    build = "optimised" if is_optimised() else "built without optimisations"
    return f"{platform.python_implementation()} {platform.python_version()}, {build}"


if __name__ == "__main__":
    sys.exit(not is_optimised())
