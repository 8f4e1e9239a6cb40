"""How a layer was produced, in words that carry their proof; and answers about it.

Door: `tell.py` makes a `Story` of evidence alone, `questions.py` answers what may be asked,
`blame.py` finds who gave a cell its value; `text.py`, `markdown.py` and `page.py` render. Everything
is read through `access/boundary.py`; nothing is asked of upstream, made again, or changed.
"""
