"""Number formats, rounding, storage dtypes, and arrays of other libraries.

Every package may import this one; it imports only the status codes.
"""
