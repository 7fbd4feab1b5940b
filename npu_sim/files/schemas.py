"""The forms of the JSON that the project writes: every document names its own under ``schema``, docs/json.md says what they hold.

A version goes up when a key is removed or changes its meaning; new keys do not change it.
"""

CALLS = "npu_sim.calls/1"
"""A file of calls: the first line of a recording."""
