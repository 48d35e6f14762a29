"""What the commands `train`, `evaluate` and `prepare` do."""
