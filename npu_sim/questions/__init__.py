"""Questions about plans: why this one, what elsewhere, how large at most, what is nearby, and all calls of a file.

Faces and shows enter; every question is asked of a declared operator, never of one by name.
"""
