"""Dumps of accuracy tools (msprobe): the calls in them, rebuilt, checked and compared."""
