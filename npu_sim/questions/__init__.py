"""Analyses of plans: explanations, comparisons, limits, nearby plans, preflight, device profiles.

They work for every declared operator; none of them names an operator.
"""
