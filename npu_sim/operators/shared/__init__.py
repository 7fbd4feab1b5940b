"""What several operators use: inputs, formulas and plans of operators of one family."""
