"""Number formats, rounding, storage, ulp, and arrays of other libraries: what values are, with no idea of operators.

Everybody may enter; the room itself knows nothing of the package but the status codes.
"""
