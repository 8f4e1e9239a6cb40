"""pages: what people look at in a browser, rendered on the server.

A page is a struct (`HomePage`, `DatasetPage`, …) and a function that turns it into HTML; its JSON
twin is the same struct. `gather/` fills the structs from what other rooms answer for this reader.
Promises: whatever data, titles or reasons hold is shown as text; no page asks anybody outside.
May not: decide who may read what, read past `reading.boundary`, or write.
"""
