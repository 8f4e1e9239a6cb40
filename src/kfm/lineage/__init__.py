"""Lineage: one record per run, several renderings."""
