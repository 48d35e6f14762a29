"""Final answers of problems of mathematics, in three steps: find, read, compare.

Importing this package loads no library of mathematics: comparing does, where it is done.
"""

from rollwise.answers.equality import equal_answers, why_unreadable
from rollwise.answers.finding import final_answer, reference_answer

__all__ = ["equal_answers", "final_answer", "reference_answer", "why_unreadable"]
