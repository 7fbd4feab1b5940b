"""The commands, one module each: a frozen class of its options, and a function that runs it."""
