"""Translation: English in the code, one gettext catalogue for each other language.

Front ends, show and exceptions render texts. Data and JSON stay English.
"""

from npu_sim.language.text import (
    LANGUAGES,
    Argument,
    Joined,
    Text,
    Verbatim,
    bytes_text,
    calls_text,
    count_text,
    grouped,
    joined,
    language,
    percent_text,
    say,
    short_bytes_text,
    time_text,
    translated,
    translated_data,
    ulp_text,
    using_language,
    visible,
    with_arguments,
    with_changed_fields,
)

__all__ = [
    "LANGUAGES",
    "Argument",
    "Joined",
    "Text",
    "Verbatim",
    "bytes_text",
    "calls_text",
    "count_text",
    "grouped",
    "joined",
    "language",
    "percent_text",
    "say",
    "short_bytes_text",
    "time_text",
    "translated",
    "translated_data",
    "ulp_text",
    "using_language",
    "visible",
    "with_arguments",
    "with_changed_fields",
]
