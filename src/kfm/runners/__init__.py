"""Other people's orchestrators run kfm: stage by stage, or job by job from files rendered for them.

`table.py` names the runners; each has an adapter that says which files it wants and finds the
command lines in them again. Every line calls the entry points that a person calls. Rendering is a
function of the workspace and its settings: the same bytes every time. Nothing here decides what a
run does: `kfm runner compare` shows that the choice of a runner changes no byte.
"""
