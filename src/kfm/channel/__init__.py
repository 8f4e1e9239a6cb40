"""What is official: a signed chain of generations, the last one counts.

Appending a generation is the one moment at which something becomes official (★). Nothing here
judges whether it may.
"""
