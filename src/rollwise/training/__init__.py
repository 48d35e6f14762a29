"""Training: the loop, the learner, and what they need."""
