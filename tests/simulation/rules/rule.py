"""A rule that runs are held to is a class of violations: raising one says that the rule was broken."""

from collections.abc import Iterator
from typing import ClassVar


class Violation(Exception):
    """A property that must always hold did not."""

    name: ClassVar[str] = ""
    sees: ClassVar[str] = ""
    holds: ClassVar[str] = ""
    """It is broken where this does not hold."""

    def __str__(self) -> str:
        return f"{self.name}: {super().__str__()}"

    def beside(self, where: object) -> "Violation":
        """Return this with a word on where it happened."""
        self.args = (f"{self.args[0]} ({where})",)
        return self


class _Rule:
    def __init__(self, holds: str) -> None:
        self._holds = holds

    def __set_name__(self, owner: type, name: str) -> None:
        fields = {"name": name, "sees": owner.__doc__, "holds": self._holds}
        setattr(owner, name, type(name, (Violation,), fields))


def rule(holds: str) -> type[Violation]:
    """Make the rule of a class that says in its docstring what its rules see; the attribute gives it its name."""
    return _Rule(holds)  # type: ignore[return-value]  # which puts the rule in its place


def rules() -> Iterator[type[Violation]]:
    """Yield all rules whose modules are imported."""
    yield from Violation.__subclasses__()
