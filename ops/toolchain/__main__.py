"""Edge: `python -m ops.toolchain TOOL`: print where a tool is, of Kafka the class path; build it if missing.

For Kafka, a file of its classes is made, too: each of its processes starts with half of the work. `older-kafkas` are the
releases from which tests upgrade.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Final

from metadata_log.errors import MetadataError
from ops.toolchain import etcd_binary, promtool_binary, toxiproxy_binary
from ops.toolchain.jars import OLDER_VERSIONS, ZOOKEEPER_VERSION, kafka_jars


def kafka() -> str:
    from ops.kafka.shared_classes import share_classes

    share_classes()
    return kafka_jars().class_path


def older_kafkas() -> str:
    return "\n".join(kafka_jars(release).class_path for release in (*OLDER_VERSIONS, ZOOKEEPER_VERSION))


_TOOLS: Final[dict[str, Callable[[], object]]] = {
    "etcd": etcd_binary,
    "toxiproxy": toxiproxy_binary,
    "promtool": promtool_binary,
    "kafka": kafka,
    "older-kafkas": older_kafkas,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.toolchain")
    parser.add_argument("tool", choices=tuple(_TOOLS))
    try:
        print(_TOOLS[parser.parse_args().tool]())
    except MetadataError as error:
        print(error.message, file=sys.stderr)
        return 6
    return 0


if __name__ == "__main__":
    sys.exit(main())
