"""What proves a version: captures, journals, receipts, records, proposals, and what is rendered
from them.

Evidence is written once and never changed; what can be rendered again may be lost.
"""
