"""Publishers: the face of every effect."""
