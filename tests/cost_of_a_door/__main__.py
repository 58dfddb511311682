"""Edge: `python -m tests.cost_of_a_door`: add a made-up door to a scratch copy, count the files edited, and use it."""

import sys
import tempfile
from pathlib import Path

from tests.cost_of_a_door.scratch import DOOR, REGISTRIES_MAX
from tests.cost_of_a_door.use import use


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        root = DOOR.make_scratch(Path(directory) / "code")
        for line in use(root, Path(directory) / "cluster"):
            print(line)
    edited = DOOR.edited_files()
    print(f"{len(DOOR.new_files())} new files: {', '.join(DOOR.new_files())}")
    print(
        f"{len(DOOR.edits)} line in {len(edited)} edited file, at most {REGISTRIES_MAX} allowed: {', '.join(edited)}"
    )
    return 0 if len(edited) <= REGISTRIES_MAX and len(DOOR.edits) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
