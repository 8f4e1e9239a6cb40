"""Names become back ends: a folder, its settings and its registry become a world to run in."""
