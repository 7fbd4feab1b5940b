"""Calls carried out in their workspace: every intermediate tensor lies where the plan puts it. One module an operator that has any."""
