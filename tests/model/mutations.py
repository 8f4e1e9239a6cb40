"""The model's seeded mistakes, made in the real engine: (file, text, replacement) and a scenario in which each matters."""

MUTATIONS: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "no_fence": (
        "expiry",
        [
            (
                "store/leases.py",
                "    def check(self, *tokens: Token) -> tuple[str, ...]:\n        for token in tokens:",
                "    def check(self, *tokens: Token) -> tuple[str, ...]:\n        for token in ():",
            )
        ],
    ),
    "epochless": (
        "failure",
        [
            (
                "run/noop.py",
                "    if rejected is not None:\n",
                "    rows = tx.runs.by_tuple(target.dataset_id, target.partition, target.spec_hash, captured.input_hash)\n"
                "    if any(r.ended_at and r.base_version == head.version_id for r in rows):\n"
                '        return Noop("known", "journal is finished")\n'
                "    if rejected is not None:\n",
            )
        ],
    ),
    "ack_early": (
        "crashes",
        [
            (
                "run/update.py",
                "    tx.jobs.start(job)\n",
                "    tx.jobs.start(job)\n    tx.jobs.ack(target.dataset_id, target.partition, target.win)\n",
            )
        ],
    ),
    "noop_any_key": (
        "a-b-a-b",
        [
            (
                "run/noop.py",
                "    if head.version_id is None or unknown_content(head):\n        return False\n",
                "    rows = tx.runs.by_tuple(target.dataset_id, target.partition, target.spec_hash, captured.input_hash)\n"
                '    if any(r.state == "COMMITTED" for r in rows):\n        return True\n',
            )
        ],
    ),
    "project_early": (
        "a-b-a, faults",
        [
            (
                "run/promote.py",
                "                made = self._star(sealed)\n",
                "                early = b'{\"kfm:generation\":%d}' % self.row.intent\n"
                '                self.world.publisher.update_metadata(f"catalog/dcat/{self.row.dataset_id}.json", early)\n'
                "                made = self._star(sealed)\n",
            )
        ],
    ),
    "deliver_early": (
        "a-b-a-b",
        [
            (
                "evidence/projection.py",
                "        if found is None:\n            continue  # not committed yet\n        if found.run_id == row.run_id:",
                "        if found is None or found.run_id == row.run_id:",
            ),
            (
                "evidence/projection.py",
                'state = "delivered" if found.run_id == row.run_id else "dropped"',
                'state = "delivered"',
            ),
        ],
    ),
    "replace_gen": (
        "staged, reindex",
        [
            (
                "channel/generations.py",
                "        return self._zone.create(self.path(predicate.generation), signed)",
                "        self._zone.remove(self.path(predicate.generation))\n        return self._zone.create(self.path(predicate.generation), signed)",
            )
        ],
    ),
    "memory_before_the_store": (
        "a commit fails",
        [
            (
                "evidence/journal.py",
                "            tx.journals.append(page.records)\n            return result",
                "            tx.journals.append(page.records)\n            self._stored, self._riding = [*stored, *page.records], []\n            return result",
            ),
            ("evidence/journal.py", "        self._unsure = True\n", ""),
        ],
    ),
    "lineage_late": (
        "a-b-a, faults",
        [
            (
                "run/publish.py",
                "    wal.commit(rows)\n",
                "    wal.commit(lambda tx, page: None)\n    world.store.late = lambda tx: rows(tx, wal.page())\n",
            ),
            (
                "run/promote.py",
                "                yield Reached.OFFICIAL\n",
                "                yield Reached.OFFICIAL\n                self.world.store.transaction(self.world.store.late)\n",
            ),
        ],
    ),
    "early_read": (
        "a-b-a, quick",
        [
            (
                "run/update.py",
                "            yield Reached.CAPTURED\n",
                "            work.world.store.early = work.world.store.transaction(lambda tx: work.world.channel(work.target.dataset_id).head(tx))\n"
                "            yield Reached.CAPTURED\n",
            ),
            (
                "run/claim.py",
                "    head = world.channel(target.dataset_id).head(tx)\n    job = tx.jobs.get(",
                "    head = world.store.early\n    job = tx.jobs.get(",
            ),
        ],
    ),
    "erase_intent": (
        "erasure, crashes",
        [
            (
                "acts/intend.py",
                "    world.data.create(act.path, pretty(act))\n    if predicate",
                "    if predicate",
            )
        ],
    ),
    "lift_all": (
        "two withdrawals, one undone",
        [
            (
                "channel/generations.py",
                'r.kind == "withdraw" and r.generation not in gone',
                'r.kind == "withdraw" and not gone',
            )
        ],
    ),
    "unsealed": (
        "a-b-a, faults",
        [
            (
                "run/publish.py",
                "    receipts = seal(world, row, wal.records)\n",
                '    receipts = "sha256:" + "0" * 64\n',
            ),
            (
                "run/promote.py",
                "                yield Reached.OFFICIAL\n",
                "                yield Reached.OFFICIAL\n                from kfm.evidence.receipts import seal\n\n"
                "                seal(self.world, self.row, self.wal.records)\n",
            ),
        ],
    ),
}
