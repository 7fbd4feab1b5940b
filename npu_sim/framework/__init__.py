"""The framework of operator declarations: arguments, checks, inference of inputs, outputs, and the call itself."""
