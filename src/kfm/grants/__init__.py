"""A steward's signed word about a dataset, beside any version of it.

Door: `grant.py` (a person may use it for a purpose until a day), `permit.py` (it may be public
although its licence, or some of its records, say less). A word that is not signed by somebody who
may speak for the dataset is none. A word is told here, never weighed: gates and boundary do that.
"""
