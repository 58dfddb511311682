"""Edge: files of Java's properties: what an operator and Java itself write in them, and a line that is none."""

import pytest

from ops.java_properties import properties_text, read_properties


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("# a\n! b\n\n node.id = 7 \n", {"node.id": "7"}),
        ("a=b=c\nd:e\nf=\n", {"a": "b=c", "d": "e", "f": ""}),
        ("a=1\na=2\n", {"a": "2"}),
        # As Properties.store writes what has such characters.
        (r"cluster.id=x\=\=" + "\n", {"cluster.id": "x=="}),
        (r"a\:b=c\:\\d\u00e9\t." + "\n", {"a:b": "c:\\d\u00e9\t."}),
        ("log.dirs=/a,\\\n    /b\n", {"log.dirs": "/a,/b"}),
        ("a=b\\\\\nc=d\\", {"a": "b\\", "c": "d"}),
    ],
)
def test_what_java_reads_is_read(text: str, read: dict[str, str]) -> None:
    assert read_properties(text) == read


def test_what_is_written_is_read_again() -> None:
    properties = {"listeners": "CLIENTS://127.0.0.1:9092", "empty": ""}
    assert read_properties(properties_text(properties)) == properties


def test_another_line_is_named() -> None:
    with pytest.raises(ValueError, match="'node' is no name=value"):
        read_properties("node\n")
