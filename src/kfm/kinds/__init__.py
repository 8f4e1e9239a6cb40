"""The kinds of source kfm knows, one file each: how to ask for the bytes, and how to read them."""
