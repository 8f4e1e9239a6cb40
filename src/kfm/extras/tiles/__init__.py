"""Vector tiles of a table, made by tippecanoe."""
