"""Other people's orchestrators call kfm stage by stage."""
