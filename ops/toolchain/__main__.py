"""Edge: `python -m ops.toolchain etcd|toxiproxy`: print a binary's path; build it if missing."""

import argparse
import sys

from ops.toolchain import ToolMissing, etcd_binary, toxiproxy_binary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.toolchain")
    parser.add_argument("tool", choices=("etcd", "toxiproxy"))
    tool = parser.parse_args().tool
    try:
        print(etcd_binary() if tool == "etcd" else toxiproxy_binary())
    except ToolMissing as error:
        print(error.message, file=sys.stderr)
        return 6
    return 0


if __name__ == "__main__":
    sys.exit(main())
