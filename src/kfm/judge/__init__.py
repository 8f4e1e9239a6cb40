"""May it be published?

Everything there is to look at is gathered once, and every gate is asked. What nobody looked at
denies.
"""
