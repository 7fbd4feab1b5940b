"""Orders of addition: summation trees, and the declarations of operators that studies examine."""
