"""Search: passages of published files, found by their words and by what they mean."""
