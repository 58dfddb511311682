"""Edge: pyarrow, imported without pandas. Tests: tests/unit/metadata_log/replay/test_arrow_alone.py."""

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """Finds pandas nowhere."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def load_arrow_alone() -> None:
    """Import pyarrow, and keep it from importing pandas, for which it looks at its first array: a sixth of a second.

    Tables of pyarrow cannot become frames of pandas in this process from then on.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
