"""The forms of the JSON that the project writes: every document names its own under ``schema``, docs/json.md says what they hold.

A version goes up when a key is removed or changes its meaning; new keys do not change it.
"""

CALLS = "npu_sim.calls/1"
"""A file of calls: the first line of a recording."""
PREFLIGHT = "npu_sim.preflight/1"
"""What ``npu-sim preflight --json`` prints."""
PREFLIGHT_RESULT = "npu_sim.preflight_result/1"
"""One line of the file that ``npu-sim preflight --out`` writes."""
