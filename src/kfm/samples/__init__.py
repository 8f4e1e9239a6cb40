"""An invented upstream that behaves badly on purpose. Nothing of it is real, and everything says
so.
"""
