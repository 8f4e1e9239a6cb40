"""May it be published, and may it be read?

Gates, release rules, permits and the boundary every way out passes. What nobody looked at denies.
"""
