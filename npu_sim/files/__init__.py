"""Files: untrusted input is read with limits, output is written whole or not at all.

``reading`` and ``writing`` open files. The other modules parse formats: tensors, YAML, and profiles
of devices.
"""
