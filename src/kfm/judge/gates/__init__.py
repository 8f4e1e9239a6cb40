"""The gates: each looks at one thing and says yes, no, or ask a person."""
