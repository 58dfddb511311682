"""Edge: `python -m tests.cost_of_a_subject`: add a made-up subject to a scratch copy, count the files edited, and use it."""

import sys
import tempfile
from pathlib import Path

from tests.cost_of_a_subject.scratch import REGISTRIES_MAX, SUBJECT
from tests.cost_of_a_subject.use import use


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        root = SUBJECT.make_scratch(Path(directory) / "code")
        for line in use(root, Path(directory) / "cluster"):
            print(line)
    print(f"{len(SUBJECT.new_files())} new files: {', '.join(SUBJECT.new_files())}")
    print(
        f"{len(SUBJECT.edited_files())} edited files, at most {REGISTRIES_MAX} allowed: {', '.join(SUBJECT.edited_files())}"
    )
    return 0 if len(SUBJECT.edited_files()) <= REGISTRIES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
