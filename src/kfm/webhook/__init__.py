"""The world tells us that something changed: signed requests become events, and events ask for runs.

It promises that nothing is believed before its signature was, that what is answered with 202 is in
the store together with the job it asks for, and that the same delivery asks once. It may not follow
an address that a payload names, and may not say a secret.
"""
