"""Lineage for a graph that is asked in Cypher: Neo4j over Bolt."""
