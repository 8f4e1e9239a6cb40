-- name: lease_get
select epoch, token, holder, boot_id, expires_ns <= :boot_ns as ran_out from lease where name = :name
-- name: lease_near
select name, epoch, token, holder, boot_id, expires_ns <= :boot_ns as ran_out from lease
where name = :name or (name > :under and name < :past)
-- name: lease_lock
select name, epoch, token, holder, boot_id, expires_ns <= :boot_ns as ran_out from lease
where name = :name or (name > :under and name < :past) order by name /*for update*/
-- name: lease_put
insert into lease (name, epoch, token, holder, boot_id, expires_ns) values (:name, :epoch, :token, :holder, :boot_id, :boot_ns + :lasts_ns)
on conflict (name) do update set epoch = excluded.epoch, token = excluded.token, holder = excluded.holder,
  boot_id = excluded.boot_id, expires_ns = excluded.expires_ns
-- name: lease_check
select 1 from lease where name = :name and epoch = :epoch and token = :token and holder is not null /*for key share*/
-- name: lease_renew
update lease set expires_ns = :boot_ns + :lasts_ns where name = :name and epoch = :epoch and token = :token and holder is not null
-- name: lease_release
update lease set holder = null where name = :name and epoch = :epoch and token = :token
-- name: lease_drop
delete from lease where name = :name and epoch = :epoch and token = :token
-- name: lease_held
select name, epoch, token, holder, boot_id, expires_ns, expires_ns <= :boot_ns as ran_out from lease where holder is not null order by name
-- name: run_get
select * from ledger where run_id = :run_id
-- name: run_lock
select * from ledger where run_id = :run_id /*for update*/
-- name: run_dataset
select dataset_id from ledger where run_id = :run_id
-- name: run_open
select * from ledger where dataset_id = :dataset_id and state in ('CLAIMED', 'PROPOSED') order by run_id
-- name: run_tuple
select * from ledger where dataset_id = :dataset_id and partition = :partition and spec_hash = :spec_hash
  and input_hash = :input_hash order by run_id
-- name: run_promotable
select * from ledger where dataset_id = :dataset_id and state = 'PROPOSED' and promo = 1 order by run_id
-- name: run_maker
select * from ledger where dataset_id = :dataset_id and version_id = :version_id and spec_hash = :spec_hash and state = 'COMMITTED'
order by run_id desc limit 1
-- name: run_unchanged
select partition, win, input_hash, transform_hash, spec_hash from ledger
where dataset_id = :dataset_id and version_id = :version_id and state = 'NOOP' and trigger_type <> 'assemble' order by run_id
-- name: run_unarchived
select * from ledger where dataset_id = :dataset_id and ended_at is not null and archived = 0 order by run_id
-- name: run_list
select * from ledger where (cast(:dataset_id as text) is null or dataset_id = :dataset_id) order by rowid desc limit :limit
-- name: run_newest
select * from ledger where rowid in (select max(seen.place) from (select rowid as place, partition, state from ledger
  where dataset_id = :dataset_id order by run_id desc limit :among) as seen group by seen.partition, seen.state) order by rowid desc
-- name: run_delete
delete from ledger where run_id = :run_id
-- name: journal_get
select * from journal where wal_id = :wal_id order by seq
-- name: journal_since
select * from journal where wal_id = :wal_id and seq >= :seq order by seq limit :limit
-- name: journal_one
select * from journal where wal_id = :wal_id and seq = :seq
-- name: journal_delete
delete from journal where wal_id = :wal_id
-- name: journal_head_get
select count, hash from journal_head where wal_id = :wal_id
-- name: journal_head_put
insert into journal_head (wal_id, count, hash) values (?, ?, ?)
on conflict (wal_id) do update set count = excluded.count, hash = excluded.hash
-- name: journal_head_delete
delete from journal_head where wal_id = :wal_id
-- name: journal_orphans
select distinct wal_id from journal where wal_id not in (select wal_id from ledger)
-- name: plan_get
select plan_hash, plan from plan where identity = :identity
-- name: plan_all
select identity, plan from plan
-- name: plan_delete
delete from plan where identity = :identity
-- name: plan_put
insert into plan (identity, plan_hash, plan) values (:identity, :plan_hash, :plan)
-- name: generation_last
select * from generation where dataset_id = :dataset_id order by generation desc limit 1
-- name: generation_get
select * from generation where dataset_id = :dataset_id and generation = :generation
-- name: generation_of_version
select * from generation where dataset_id = :dataset_id and version_id = :version_id order by generation desc limit 1
-- name: generation_of_run
select * from generation where dataset_id = :dataset_id and run_id = :run_id order by generation limit 1
-- name: generation_list
select * from generation where dataset_id = :dataset_id order by generation
-- name: generation_datasets
select distinct dataset_id from generation order by dataset_id
-- name: outbox_put
insert into outbox (run_id, dataset_id, generation, payload, state) values (:run_id, :dataset_id, :generation, :payload, 'waiting')
on conflict (run_id, generation) do nothing
-- name: outbox_waiting
select * from outbox where state = 'waiting' order by dataset_id, generation
-- name: outbox_delivered
select * from outbox where dataset_id = :dataset_id and state = 'delivered' order by generation
-- name: outbox_payload
select payload from outbox where run_id = :run_id and generation = :generation
-- name: outbox_mark
update outbox set state = :state where run_id = :run_id and generation = :generation
-- name: delivery_put
insert into delivery (run_id, generation, receiver, dataset_id, state, tries, not_before_ms, error)
values (:run_id, :generation, :receiver, :dataset_id, 'waiting', 0, 0, '')
on conflict (run_id, generation, receiver) do nothing
-- name: delivery_due
select * from delivery where state = 'waiting' and dataset_id = :dataset_id and not_before_ms <= :now_ms
and (generation >= 0 or generation <= -3 or exists (select 1 from ledger where ledger.run_id = delivery.run_id
  and case when delivery.generation = -1 then ended_at is not null else ledger.state <> 'CLAIMED' end))
order by generation, run_id, receiver
-- name: delivery_due_datasets
select distinct dataset_id from delivery where state = 'waiting' and not_before_ms <= :now_ms
and (generation >= 0 or generation <= -3 or exists (select 1 from ledger where ledger.run_id = delivery.run_id
  and case when delivery.generation = -1 then ended_at is not null else ledger.state <> 'CLAIMED' end))
order by dataset_id
-- name: delivery_left
select * from delivery where state in ('waiting', 'failed') order by dataset_id, generation, receiver
-- name: delivery_mark
update delivery set state = :state, error = :error, tries = tries + 1
where run_id = :run_id and generation = :generation and receiver = :receiver
-- name: delivery_over
delete from delivery where run_id = :run_id and generation = :generation and receiver = :receiver
-- name: delivery_later
update delivery set tries = tries + 1, not_before_ms = :now_ms + :wait_ms, error = :error
where run_id = :run_id and generation = :generation and receiver = :receiver
-- name: delivery_again
update delivery set state = 'waiting', not_before_ms = 0 where state in ('waiting', 'failed') and dataset_id = :dataset_id
-- name: delivery_forget
delete from delivery where dataset_id = :dataset_id and run_id not like 'act/%'
  and run_id not in (select value from json_each(:kept) as texts)
-- name: generation_forget
update generation set contents = :contents where dataset_id = :dataset_id and generation = :generation
-- name: outbox_forget
delete from outbox where dataset_id = :dataset_id and run_id not in (select value from json_each(:kept) as texts)
-- name: head_key_forget
delete from head_key where dataset_id = :dataset_id
-- name: source_state_forget
delete from source_state where dataset_id = :dataset_id
-- name: noop_forget
delete from noop where dataset_id = :dataset_id
-- name: head_key_get
select * from head_key where dataset_id = :dataset_id and partition = :partition and win = :win
-- name: head_key_all
select * from head_key where dataset_id = :dataset_id
-- name: generation_delete
delete from generation where dataset_id = :dataset_id
-- name: head_key_latest
select * from head_key where dataset_id = :dataset_id order by checked_at desc limit 1
-- name: source_untrusted
select untrusted from source_state where dataset_id = :dataset_id and source_url = :source_url
-- name: source_distrust
insert into source_state (dataset_id, source_url, untrusted) values (:dataset_id, :source_url, :untrusted)
on conflict (dataset_id, source_url) do nothing
-- name: noop_list
select run_id, dataset_id, partition, win, key, reason, names, timestamp, code from noop where (cast(:dataset_id as text) is null or dataset_id = :dataset_id) order by rowid desc limit :limit
-- name: meta_get
select value from meta where key = :key
-- name: meta_put
insert into meta (key, value) values (:key, :value) on conflict (key) do update set value = excluded.value
-- name: noop_unpacked
select run_id, dataset_id, partition, win, key, reason, names, timestamp, code from noop
where dataset_id = :dataset_id and packed = 0 and timestamp < :before order by run_id limit 1000
-- name: noop_tally
select count(*) as looks from noop where dataset_id = :dataset_id and run_id >= :since
-- name: run_tally
select count(*) as runs, coalesce(sum(case when state = 'FAILED' then 1 else 0 end), 0) as failed,
coalesce(sum(case when coalesce(latency_ms, 0) > :limit_ms then 1 else 0 end), 0) as slow
from ledger where dataset_id = :dataset_id and run_id >= :since and ended_at is not null
-- name: run_days
select substr(timestamp, 1, 10) as day, state, count(*) as runs, max(run_id) as run_id from ledger
where run_id >= :since group by substr(timestamp, 1, 10), state
-- name: run_days_of
select substr(timestamp, 1, 10) as day, state, count(*) as runs, max(run_id) as run_id from ledger
where dataset_id = :dataset_id and run_id >= :since group by substr(timestamp, 1, 10), state
-- name: noop_days
select substr(timestamp, 1, 10) as day,
case code when 'denied' then 'REJECTED' when 'proposed' then 'PROPOSED' else 'NOOP' end as state,
count(*) as runs, max(run_id) as run_id from noop where run_id >= :since group by substr(timestamp, 1, 10), code
-- name: noop_days_of
select substr(timestamp, 1, 10) as day,
case code when 'denied' then 'REJECTED' when 'proposed' then 'PROPOSED' else 'NOOP' end as state,
count(*) as runs, max(run_id) as run_id from noop where dataset_id = :dataset_id and run_id >= :since
group by substr(timestamp, 1, 10), code
-- name: noop_mark
update noop set packed = 1 where run_id = :run_id
-- name: proposal_put
insert into proposal (number, run_id) values (:number, :run_id) on conflict (number) do update set run_id = excluded.run_id
-- name: proposal_hand_on
update proposal set run_id = :new where run_id = :old
-- name: proposal_new
insert into proposal (number, run_id) select coalesce(max(number), 0) + 1, :run_id from proposal where true on conflict (run_id) do nothing
-- name: proposal_number
select number from proposal where run_id = :run_id
-- name: proposal_run
select ledger.* from proposal join ledger using (run_id) where number = :number
-- name: proposals_waiting
select proposal.number, ledger.* from proposal join ledger using (run_id) where state = 'PROPOSED' order by number
-- name: run_committed
select * from ledger where dataset_id = :dataset_id and partition = :partition and state = 'COMMITTED' order by rowid desc limit :limit
-- name: run_maker_of
select * from ledger where dataset_id = :dataset_id and version_id = :version_id and state = 'COMMITTED' order by rowid desc limit 1
-- name: run_staged
select * from ledger where dataset_id = :dataset_id and partition = :partition and win = :win and state = 'STAGED' order by run_id
-- name: run_staged_for
select * from ledger where dataset_id = :dataset_id and backfill = :backfill and state = 'STAGED' order by win, partition, run_id
-- name: run_staged_ids
select run_id from ledger where dataset_id = :dataset_id and backfill = :backfill and state = 'STAGED'
-- name: run_staged_counts
select backfill, count(*) as parts from ledger where dataset_id = :dataset_id and state = 'STAGED' group by backfill order by backfill
-- name: noop_since_failure
select run_id, code from noop where dataset_id = :dataset_id and partition = :partition and timestamp > coalesce((select max(coalesce(ended_at, timestamp))
  from ledger where dataset_id = :dataset_id and partition = :partition and state in ('FAILED', 'REJECTED')), '') order by timestamp desc limit 1
