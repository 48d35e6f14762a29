"""Trainers that people already have; each is imported only where it is used."""
