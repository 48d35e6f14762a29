"""Training at Tinker: the same loop, with a model that Tinker draws from and updates.

Importing this package loads nothing; `backend.type = "tinker"` opens the backend.
"""
