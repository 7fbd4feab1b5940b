"""Translation: English in the code, one gettext catalogue for each other language.

Front ends, show and exceptions render texts. Data and JSON stay English.
"""

from npu_sim.language.text import (
    LANGUAGES,
    Joined,
    Text,
    Verbatim,
    count_text,
    joined,
    language,
    say,
    translated,
    translated_data,
    using_language,
    visible,
    with_changed_fields,
)

__all__ = [
    "LANGUAGES",
    "Joined",
    "Text",
    "Verbatim",
    "count_text",
    "joined",
    "language",
    "say",
    "translated",
    "translated_data",
    "using_language",
    "visible",
    "with_changed_fields",
]
