"""Make text from outside safe to show: nothing in it controls a terminal, or forges a line.

Names of groups, members, clients and topics, metadata and reasons are what strangers wrote. This is
the one place that says which characters are shown as they are, for tables, sentences, log lines,
CSV and JSON alike.
"""


def visible(character: str) -> str:
    """Return a character as it is, or its escape in Python.

    Escaped are controls (C0 and C1), line breaks of all kinds, signs that turn the direction of
    what follows, others that are not seen, and halves of surrogates, which no output can encode.
    """
    return character if character.isprintable() else ascii(character)[1:-1]


def one_line(text: str) -> str:
    """Return text as one line."""
    return text if text.isprintable() else "".join(map(visible, text))
