"""Lineage for a collector that speaks OpenLineage."""
