"""The language of what people read: English in the code, other languages in one catalogue each.

Whoever shows text may enter: faces, show, and the exceptions. Nothing that computes may: data and JSON stay English.
"""

from npu_sim.language.catalogue import joined, say, translated, translated_data
from npu_sim.language.choice import LANGUAGES, language, speaking
from npu_sim.language.template import Template, Verbatim

__all__ = [
    "LANGUAGES",
    "Template",
    "Verbatim",
    "joined",
    "language",
    "say",
    "speaking",
    "translated",
    "translated_data",
]
