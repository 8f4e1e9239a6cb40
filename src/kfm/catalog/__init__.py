"""Catalogs: how a version is described to others."""
