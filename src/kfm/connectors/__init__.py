"""Turns captured bytes into one typed, byte-stable table; what parses bytes runs in a child process."""
