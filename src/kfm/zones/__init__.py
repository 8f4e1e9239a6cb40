"""Zones: where bytes live. Truth is written once, projections are rendered."""
