"""Pure: what others wrote is shown, and does nothing."""

import json

import pytest

from metadata_log.printable import json_text, printable, without_markup

DRAWING = (
    "\x1b[31m",
    "\x9b31m",
    "\x85",
    "\x7f",
    "\u202e",
    "\u200b",
    "\u2028",
    "\ufeff",
    "\ud800",
    "\U000e0001",
)
"""Escape sequences and other characters that draw, hide or turn what stands beside them."""


@pytest.mark.parametrize("drawn", DRAWING)
def test_no_character_that_draws_is_written(drawn: str) -> None:
    value = {f"k{drawn}": ["é", f"a{drawn}b", 1, None], "plain": "x y"}
    for options in ({}, {"indent": 2}, {"separators": (",", ":")}):
        text = json_text(value, **options)
        assert all(letter.isprintable() or letter == "\n" for letter in text)
        assert json.loads(text) == value and "é" in text
    assert printable(f"a{drawn}b").isprintable()
    assert printable("a\nb") == "a\\nb" and printable("é x") == "é x"


@pytest.mark.parametrize(
    "markup",
    [
        "<script>x</script>",
        "<img src=//h>",
        "<!-- -->",
        "<http://h>",
        "</td>",
        "<?x",
        "![a](//h)",
        "[a](//h)",
    ],
)
def test_no_markup_of_others_is_markup(markup: str) -> None:
    shown = without_markup(f"| {markup} |")
    assert "<" not in shown.replace("\\<", "") and "](" not in shown
    assert shown.replace("\\", "") == f"| {markup} |"
    assert without_markup("1 < 2, [11, 12] (3), a <= b") == "1 < 2, [11, 12] (3), a <= b"
