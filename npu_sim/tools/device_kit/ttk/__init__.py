"""Cases for the vendor's operator test kit, and what its results show.

Source: specification page ``ttk``.
"""
