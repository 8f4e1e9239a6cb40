"""The console: what people may do over HTTP, beside looking. Its only writes are requests for jobs and
decisions on what waits, each through the code of the command line, after who asks was let in, their
form was known for ours, and a line of the audit log says so. It decides nothing: what may be
approved, and by whom, is said by the rooms below. docs/reader.md.
"""
