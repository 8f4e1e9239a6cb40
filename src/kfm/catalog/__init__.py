"""One version told as DCAT, STAC and PROV; lineage told as rows, Cypher and OpenLineage.

The same facts give the same bytes.
"""
