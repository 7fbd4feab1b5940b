"""Fixed texts of the page.

Texts about a call are translated on the server and sent with the answer.
"""

from types import MappingProxyType

from npu_sim.language import translated, using_language

LANGUAGES = MappingProxyType({"en": "English", "zh": "中文"})
"""Languages of the page, as they call themselves."""
UNFINISHED = "the computation stopped unexpectedly; perhaps memory ran out"
"""Text of a computation whose process ended without an answer."""
TEXTS = (
    "as implied",
    "attributes",
    "back to the defaults",
    "cancel",
    "close the second pane",
    "compare with another call",
    "copied",
    "copy as command",
    "copy as Python",
    "copy link",
    "could not copy",
    "deterministic",
    "documented: limits of the product documents; hardware: limits of the buffers",
    "drop it: a product (.yaml), a profile of a device (.csv, .db), calls (.jsonl)",
    "JSON",
    "language",
    "selects {path}",
    "left out",
    "left out: {value}",
    "limits",
    "Lower bound of its time",
    "marked with ≠, different: {names}",
    "nothing is different",
    "open a file",
    "One core, step by step",
    "operator",
    "or drop it here: a product (.yaml), a profile of a device (.csv, .db), calls (.jsonl)",
    "overflows: {path}",
    "Plan",
    "planned in {milliseconds} ms",
    "product",
    "progress",
    "refused: {why}",
    "release",
    "release of the product's software",
    "Replaces what the sizes imply, such as 4096x512:bf16 or 4096x512:bf16:strided; empty: as "
    "implied.",
    "report",
    "Run on generated data",
    "run on generated data",
    "runs: {path}",
    "same path; {effect}",
    "save as one file",
    "sending",
    "Simulated, not measured on a device. To open it in npu-sim explore, put this behind its "
    "address:",
    "Sizes may be written as 4K (4096), 7168*2 or 1e4.",
    "sizes of the first call",
    "sizes, dtypes and switches",
    "SoC",
    "tensors as text",
    "the call",
    "the second call",
    "the explorer does not answer: is npu-sim explore still running?",
    "the switch of deterministic computation",
    "The trace opens in the viewer Perfetto: on ui.perfetto.dev choose Open trace file; it stays "
    "on your machine.",
    "trace",
    "Changes that select another path",
    "Nearest calls that run",
    "where",
    "Work over time",
    "{name}, slider",
    "{seconds} s",
)
"""Texts of the page and of its scripts; {names} are placeholders."""
STAGES = (
    "waiting",
    "starting",
    "planning",
    "generating data",
    "computing",
    "reading",
    "checking calls",
    "done",
    "cancelled",
    UNFINISHED,
)
"""Names of the stages of a computation."""


def page_texts(language: str) -> dict[str, str]:
    """Return the texts of the page in a language, by their English text."""
    with using_language(language):
        return {text: translated(text) for text in (*TEXTS, *STAGES)}
