"""What the kernel forbids a child process: files, programs, sockets, signals.

Called in the child before it reads a byte of somebody else's data; nothing here can be undone by
who is held.
"""
