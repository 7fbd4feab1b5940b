"""Files: everything read from strangers, and everything written, whole or not at all.

``writing`` and ``reading`` are the two places that open files; ``tensors`` and ``yaml_document`` say what is in them.
"""
