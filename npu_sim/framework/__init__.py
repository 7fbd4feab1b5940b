"""The framework of operator declarations: reading, checking, planning and computing a call."""
