"""Pure: typed reading of maps that strangers sent, with an error that names the field."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from metadata_log.errors import InvalidRequest
from metadata_log.ids import Uuid
from metadata_log.limits import LIST_ITEMS_MAX, TEXT_BYTES_MAX

T = TypeVar("T")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Fields:
    """A map whose values are taken one by one; `done` refuses what nobody took.

    Every method raises InvalidRequest naming the field that is missing or of another kind.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InvalidRequest(f"{what} must be a map with text keys")
        self._map: dict[str, Any] = dict(value)
        self._what = what

    def _take(self, name: str, default: object) -> Any:
        value = self._map.pop(name, default)
        if value is ...:
            raise InvalidRequest(f"{self._what}.{name} is missing")
        return value

    def wrong(self, name: str, wanted: str) -> InvalidRequest:
        return InvalidRequest(f"{self._what}.{name} must be {wanted}")

    def integer(self, name: str, *, low: int = 0, high: int = INT64_MAX, default: object = ...) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"an integer from {low} to {high}")
        return value

    def boolean(self, name: str, *, default: object = ...) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, *, bytes_max: int = TEXT_BYTES_MAX, default: object = ...) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or len(encoded(value, self._what, name)) > bytes_max:
            raise self.wrong(name, f"text of at most {bytes_max} bytes")
        return value

    def text_or_none(
        self, name: str, *, bytes_max: int = TEXT_BYTES_MAX, default: object = ...
    ) -> str | None:
        if self._map.get(name, default) is None:
            self._map.pop(name, None)
            return None
        return self.text(name, bytes_max=bytes_max)

    def uuid(self, name: str) -> Uuid:
        value = self._take(name, ...)
        if not isinstance(value, bytes) or len(value) != 16:
            raise self.wrong(name, "a uuid of 16 bytes")
        return Uuid(value)

    def uuids(self, name: str, *, default: object = ...) -> tuple[Uuid, ...]:
        def one(value: object) -> Uuid:
            if not isinstance(value, bytes) or len(value) != 16:
                raise self.wrong(name, "a list of uuids of 16 bytes")
            return Uuid(value)

        return self.items(name, one, default=default)

    def uuids_or_none(self, name: str) -> tuple[Uuid, ...] | None:
        if self._map.get(name, ...) is None:
            del self._map[name]
            return None
        return self.uuids(name)

    def items(
        self, name: str, read: Callable[[Any], T], *, most: int = LIST_ITEMS_MAX, default: object = ...
    ) -> tuple[T, ...]:
        """Return a list's items as `read` makes them; `read` raises for one it cannot take."""
        value = self._take(name, default)
        if not isinstance(value, list | tuple) or len(value) > most:
            raise self.wrong(name, f"a list of at most {most}")
        return tuple(read(item) for item in value)

    def text_map(self, name: str, *, bytes_max: int, default: object = ...) -> dict[str, str]:
        value = self._take(name, default)
        if not isinstance(value, Mapping) or len(value) > LIST_ITEMS_MAX:
            raise self.wrong(name, "a map of text to text")
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str):
                raise self.wrong(name, "a map of text to text")
            if (
                len(encoded(key, self._what, name)) > TEXT_BYTES_MAX
                or len(encoded(item, self._what, name)) > bytes_max
            ):
                raise self.wrong(
                    name, f"names of at most {TEXT_BYTES_MAX} and values of at most {bytes_max} bytes"
                )
        return dict(value)

    def optional(self, name: str, read: Callable[[Any], T]) -> T | None:
        value = self._take(name, ...)
        return None if value is None else read(value)

    def anything(self, name: str) -> Any:
        """Return a value whose kind depends on other fields; the caller checks it."""
        return self._take(name, ...)

    def has(self, name: str) -> bool:
        return name in self._map

    def done(self) -> None:
        """Refuse what was sent and not asked for: a misspelt field must not be passed over in silence."""
        if self._map:
            raise InvalidRequest(f"{self._what} has unknown fields: {', '.join(sorted(self._map))}")


def is_host(text: str) -> bool:
    """Answer whether a host may be called so: a numeric address, or a name that can be looked up, whoever has it.

    A name with an empty label, or one of more than 63 characters, cannot: the attempt ends in a UnicodeError, which those
    who handle a network's failures do not expect.
    """
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text != "" and text.isprintable() and " " not in text


def encoded(text: str, what: str, name: str) -> bytes:
    """Return text as UTF-8; half a surrogate pair, which JSON can smuggle in, is refused."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what}.{name} is not Unicode text") from error
