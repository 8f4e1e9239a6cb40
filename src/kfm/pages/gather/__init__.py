"""gather: what each page tells, asked of the rooms that know, for whoever looks.

One file for each page, or a few that belong together. Every way to data goes through the door that
the page was asked at (`Asks`); what its viewer may not know is not in the struct that comes back.
"""
