"""Where a version comes from, written down once and told in four ways.

`record.py` is the record; `graph.py` its nodes and edges, which the index, `cypher.py` and a graph
outside are all made of; `openlineage.py` tells it as events, `kfm.catalog.prov` as PROV.
Nothing here reads or writes: the same facts give the same bytes.
"""
