"""Escape untrusted names and texts for display on a terminal and in Markdown.

Models' names, cards, manifests and tokens are untrusted text. Code that displays them uses this module; stored and
computed values are never changed.
"""

import re

_ENTITIES = {ord(each): f"&#{ord(each)};" for each in "&<>|`"}  # a backslash does not always escape these
_WORD = r"[^\W_]"  # an underscore between two of these is not markup, and is frequent in names
_MARKUP = re.compile(rf"[\\*~#$@!^\[\]]|(?<!{_WORD})_|_(?!{_WORD})|(?<=:)//|(?<=www)\.", re.IGNORECASE)

_QUERY = re.compile(r"(https?://[^\s?'\"<>]*\?)[^\s'\"<>)]+")
_CREDENTIALS = re.compile(r"(\w://)[^/@\s'\"]+@")


def without_signatures(text: str) -> str:
    """Remove queries and passwords from the URLs in a text, because a signed URL gives any reader access.

    >>> without_signatures("503 for url 'https://host/file?X-Amz-Signature=1f2e' by http://ann:pw@proxy:1")
    "503 for url 'https://host/file?…' by http://…@proxy:1"
    """
    return _CREDENTIALS.sub(r"\1…@", _QUERY.sub(r"\1…", text))


def visible(text: str, keep: str = "") -> str:
    r"""Replace every unprintable character by its ``repr`` escape, so that a text cannot control a terminal.

    The unprintable characters are control characters (an ESC starts a terminal command), characters that have no width
    or change the direction of writing, unusual spaces, and lone surrogates. Backslashes are not doubled, because people
    read the text.

    Args:
        text: Untrusted text.
        keep: Characters that are not replaced, such as the line breaks of our own messages.

    >>> print(visible("red \x1b[31m \u202egnp.exe\n"))
    red \x1b[31m \u202egnp.exe\n
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def markdown(value: object) -> str:
    r"""Escape a text for one line of Markdown, so that it has no markup, HTML or link, and ends no table cell.

    >>> print(markdown("a|b <script> *c*"))
    a&#124;b &#60;script&#62; \*c\*
    """
    return _MARKUP.sub(lambda found: f"\\{found[0]}", visible(str(value))).translate(_ENTITIES)
