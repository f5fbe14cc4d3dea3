"""Text and data inside an HTML page, where names of models and tokens must stay data."""

import html
import json
import math
from typing import Any

from collapse.escaping import visible


def text_of(value: object) -> str:
    r"""Return a text for HTML: without markup, its control characters visible.

    >>> print(text_of('<b>"a"\x1b'))
    &lt;b&gt;&quot;a&quot;\x1b
    """
    return html.escape(visible(str(value)))


def json_of(value: Any) -> str:
    r"""Return JSON that can stand inside a script element of a page.

    No ``<`` is left in it, because ``</script>`` would end the element whatever its type, and ``<!--`` change how the
    rest is read. All characters are ASCII, because a lone surrogate has no UTF-8.

    >>> print(json_of(["</script>", "a&b"]))
    ["\u003c/script\u003e","a\u0026b"]
    """
    made = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        made = made.replace(character, f"\\u{ord(character):04x}")
    return made


def plain(value: Any) -> Any:
    r"""Return a value of a table as JSON holds it, with control characters of texts visible.

    NaN and pandas' NA become None, an infinite number a text, NumPy's numbers plain ones.

    >>> import numpy as np
    >>> [plain(each) for each in (np.float64(1.5), float("nan"), float("-inf"), "a\n", True)]
    [1.5, None, '−∞', 'a\\n', 'yes']
    """
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else "∞" if value > 0 else "−∞"
    if isinstance(value, str):
        return visible(value)
    try:
        missing = value != value  # NaT; comparing pandas' NA gives NA, of which there is no truth
        return None if missing else visible(str(value))
    except TypeError:
        return None
