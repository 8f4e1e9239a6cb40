"""What tests are given: verbs for a workspace, upstreams that say anything, and datasets to try
them on. Nothing here is a test.
"""
