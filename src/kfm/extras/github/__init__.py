"""GitHub as a face of kfm: releases, pull requests, checks, comments, artifacts and events.

It promises that an effect which was made is never made twice: each carries a mark that is looked for
first, also after a crash or an answer that was lost. It decides nothing: what may leave is asked of
`reading.boundary`, and only a proposal that every gate and every approval lets through is promoted.
It may not hold a token of its own, follow an address that GitHub names to another host with one, or be
loaded by a workspace that names no repository.
"""
