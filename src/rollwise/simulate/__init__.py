"""What methods cost and teach, without a model: planned steps, and replays of recorded rewards."""
