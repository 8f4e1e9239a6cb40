"""What was refused, and what people decide about it.

Door: `refused.py` writes what a run sets aside, `decisions.py` what a person says of it, `desk.py` shows
both against what is official and makes the target that works a capture again. What was set aside
reaches a version only as a person decided; nothing of it is changed or dropped, and of a private
dataset nothing is shown. Nothing here appends to a channel.
"""
