"""What a plan is: the model every answer is made from, and the workspace of a call with its placement.

Operators fill it in, questions and shows read it; it knows no operator, and not how it is printed.
"""
