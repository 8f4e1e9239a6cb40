"""Kinds of source of one agency each: NOAA's daily stations and the weather service, the water data
and the earthquakes of the USGS.

Found by entry point, as a kind of anybody else; the core knows their names and what
`kfm.model.kinds` says of them, and runs without them.
"""
