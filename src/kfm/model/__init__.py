"""The words of kfm as frozen records: what crosses a disk, a wire or a process."""
