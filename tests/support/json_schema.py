"""Pure: as much of JSON Schema as the description of the HTTP surface and that of compose.yaml use; an unknown keyword is an
error.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

SAYS_NOTHING: Final = {
    "title",
    "description",
    "default",
    "contentEncoding",
    "format",
    "definitions",
    *("$schema", "$id"),
    "minLength",
    "maxLength",
    "maxProperties",
}
KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def faults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """Yield what is wrong with a value, with its place. A map may have no field that its schema does not name."""
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    for keyword, of in schema.items():
        match keyword:
            case "$ref":
                yield from faults(value, _resolved(of, root), root, at)
            case "anyOf":
                tried = [list(faults(value, one, root, at)) for one in of]
                if all(tried):
                    yield f"{at}: none of {len(of)} fits: {min(tried, key=len)}"
            case "oneOf":
                tried = [list(faults(value, one, root, at)) for one in of]
                if sum(not found for found in tried) != 1:
                    yield f"{at}: not one of {len(of)} fits alone: {min(tried, key=len)}"
            case "type":
                if not any(_is(value, kind) for kind in ([of] if isinstance(of, str) else of)):
                    yield f"{at}: {value!r} is no {of}"
            case "enum":
                if value not in of:
                    yield f"{at}: {value!r} is none of {of}"
            case "pattern":
                if re.search(of, value) is None:
                    yield f"{at}: {value!r} is not like {of}"
            case "properties" | "patternProperties":
                if keyword == "properties" or "properties" not in schema:
                    yield from _of_map(value, schema, root, at)
            case "required" if isinstance(value, dict):
                yield from (f"{at}: {name} is missing" for name in of if name not in value)
            case "additionalProperties" if isinstance(of, Mapping) and isinstance(value, dict):
                for name in value.keys() - schema.get("properties", {}).keys():
                    yield from faults(value[name], of, root, f"{at}.{name}")
            case "uniqueItems" if isinstance(value, list) and len({repr(item) for item in value}) < len(
                value
            ):
                yield f"{at}: an item is there twice"
            case "items" if isinstance(of, Mapping) and isinstance(value, list):
                for number, item in enumerate(value):
                    yield from faults(item, of, root, f"{at}[{number}]")
            case "prefixItems" if isinstance(value, list):
                for number, (item, one) in enumerate(zip(value, of, strict=True)):
                    yield from faults(item, one, root, f"{at}[{number}]")
            case "minimum" if isinstance(value, int | float) and value < of:
                yield f"{at}: {value} is below {of}"
            case "maximum" if isinstance(value, int | float) and value > of:
                yield f"{at}: {value} is above {of}"
            case "minItems" if isinstance(value, list) and len(value) < of:
                yield f"{at}: {len(value)} items, at least {of} are wanted"
            case "maxItems" if isinstance(value, list) and len(value) > of:
                yield f"{at}: {len(value)} items, at most {of} are allowed"
            case _:
                assert keyword in SAYS_NOTHING | {
                    *("additionalProperties", "items", "prefixItems", "required", "uniqueItems"),
                    *("minimum", "maximum", "minItems", "maxItems"),
                }, f"the keyword {keyword} is not understood"


def _of_map(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in value.items():
        fitting = (
            [named[name]] if name in named else [of for like, of in patterns.items() if re.search(like, name)]
        )
        for of in fitting:
            yield from faults(item, of, root, f"{at}.{name}")
        if not fitting and not isinstance(schema.get("additionalProperties"), Mapping):
            yield f"{at}: {name} is not described"


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found
