"""Files: everything read from strangers, and everything written, whole or not at all.

Faces, questions and profiles enter; nobody else opens a file.
"""
