"""The drill: kill a dataset's own pipeline everywhere, resume it, compare with the uninterrupted
run.

It happens in throw-away copies of the workspace with an empty channel and a key of their own, fed
from the last capture.

`between records`  A driver counts the commits of the run and ends itself with SIGKILL right before or right after one of
                   them; records of one commit are durable together, so there is no moment between them.
`system calls`     strace counts the calls of one thread and kills on entering the n-th, before it takes effect. Threads are
                   named by role (run, connector, …) because numbers differ. The connector's calls are met by stopping it
                   there and killing everything.
`power cut`        kill -9 loses nothing that was written; a power cut does. From a trace of the uninterrupted run the folder
                   is built again as it may look after a cut at each sync, link and rename: what was not synced is empty, and
                   a name whose folder was not synced is gone (or, in a second reading, is there). The store is as it was
                   after the last commit, which is copied at that moment: SQLite had synced it then.

A point that did not fire is a failure, never a pass.
"""
