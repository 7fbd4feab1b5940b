"""What several operators use, a package for each concept; and what any operator may use."""
