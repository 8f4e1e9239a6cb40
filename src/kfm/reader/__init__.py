"""The governed reader, `kfm serve`: what is published, over HTTP.

A face: it asks and shows, it decides nothing. Door: `app.py` (the application), `door.py` (the one
place every read passes). Everything is asked of `access/boundary.py` anew for every request, before
a 304 or a Range is answered; what somebody may not see looks like what is not there. It reads what is
official, never raw or work, and writes nothing but its log.
"""
