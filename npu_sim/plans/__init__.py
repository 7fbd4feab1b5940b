"""The data model of a plan, and the layout of a workspace.

Operators fill plans in; questions and front ends read them.
"""
