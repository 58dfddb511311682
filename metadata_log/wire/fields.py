"""Pure: what a host may be called."""


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
