"""Support for existing trainers; each is imported only where it is used."""
