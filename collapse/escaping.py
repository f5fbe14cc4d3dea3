"""Names and texts of others, made harmless where they are shown: on a terminal, in Markdown, in a spreadsheet.

A model's name, a card, a manifest and a token are anybody's text. Whoever shows one passes it through here; what is
stored and computed with is never changed.
"""

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_ENTITIES = {ord(each): f"&#{ord(each)};" for each in "&<>|`"}  # these harm even where a backslash means nothing
_WORD = r"[^\W_]"  # an underscore between two of these is no markup, and is in many names
_MARKUP = re.compile(rf"[\\*~#$@!^\[\]]|(?<!{_WORD})_|_(?!{_WORD})|(?<=:)//|(?<=www)\.", re.IGNORECASE)

_QUERY = re.compile(r"(https?://[^\s?'\"<>]*\?)[^\s'\"<>)]+")
_CREDENTIALS = re.compile(r"(\w://)[^/@\s'\"]+@")


def without_signatures(text: str) -> str:
    """Text whose addresses have no queries and no passwords: a signed address lets anybody who reads it in.

    >>> without_signatures("503 for url 'https://host/file?X-Amz-Signature=1f2e' by http://ann:pw@proxy:1")
    "503 for url 'https://host/file?…' by http://…@proxy:1"
    """
    return _CREDENTIALS.sub(r"\1…@", _QUERY.sub(r"\1…", text))


def visible(text: str, keep: str = "") -> str:
    r"""Text that a terminal only prints: every character that is not printable as the escape that ``repr`` shows.

    These are control characters (an ESC begins commands to the terminal), characters of no width, those that turn the
    direction of writing, spaces that look like another, lone surrogates. A backslash stays single: this is for eyes.

    Args:
        text: Anybody's.
        keep: Characters that stay as they are, such as the line breaks of our own messages.

    >>> print(visible("red \x1b[31m \u202egnp.exe\n"))
    red \x1b[31m \u202egnp.exe\n
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def markdown(value: object) -> str:
    r"""Text that Markdown shows as it is, on one line: no markup, no HTML, no link, and no end of a table's cell.

    >>> print(markdown("a|b <script> *c*"))
    a&#124;b &#60;script&#62; \*c\*
    """
    return _MARKUP.sub(lambda found: f"\\{found[0]}", visible(str(value))).translate(_ENTITIES)


def guarded(text: str) -> str:
    """A text cell of a CSV file that no spreadsheet takes for a formula: an apostrophe before = + - @, tab, line break.

    >>> guarded("=1+1"), guarded("-x"), guarded("2x768"), guarded("'=1")
    ("'=1+1", "'-x", '2x768', "''=1")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """What :func:`guarded` was given.

    >>> unguarded("'=1+1"), unguarded("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
