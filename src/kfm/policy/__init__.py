"""Rules in Rego: what they decide, who evaluates them, and which part of the language they may use."""
