"""The engine that makes arguments, checks, inference, outputs and faces of an operator's declaration.

Operators are declared with it; questions, sweeps and faces ask it.
"""
