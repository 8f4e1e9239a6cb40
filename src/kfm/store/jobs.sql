-- name: job_start
update job set state = 'running', outcome = '', cancel = case when owner is null then 0 else cancel end, not_before = case when outcome = 'deferred' then 0 else not_before end
where job_id = :job_id
-- name: job_take
update job set state = :state, owner = :owner, token = :token, started_at = :started_at, outcome = :outcome, wait_ms = cast(given.wait_ms as bigint)
from (select json_extract(value, '$[0]') as taken_id, json_extract(value, '$[1]') as wait_ms from json_each(:rows)) as given where job_id = given.taken_id
-- name: job_waiting
select * from job where dataset_id = :dataset_id and state <> 'ended' order by put_at, job_id
-- name: job_finish
update job set state = case when again > 0 then 'queued' else 'ended' end, forced = case when again > 0 then again - 1 else 0 end,
  again = 0, owner = null, outcome = :outcome, error = :error, ended_at = :now, attempts = 0, losses = 0, cancel = 0, not_before = 0
where job_id = :job_id and owner = :owner and token = :token and state = 'running'
-- name: job_finish_all
update job set state = case when again > 0 then 'queued' else 'ended' end, forced = case when again > 0 then again - 1 else 0 end,
  again = 0, owner = null, outcome = :outcome, error = '', ended_at = :now, attempts = 0, losses = 0, cancel = 0, not_before = 0
where job_id in (select json_extract(value, '$[0]') from json_each(:rows)) and owner = :owner and token = :token and state = 'running'
-- name: job_held_all
select job_id from job where job_id in (select json_extract(value, '$[0]') from json_each(:rows)) and owner = :owner and token = :token
  and state = 'running' /*for update*/
-- name: job_note
update job set outcome = :outcome, error = :error where job_id = :job_id and generation = :generation and state = 'ended' and outcome <> 'dead'
-- name: job_held
select * from job where job_id = :job_id and owner = :owner and token = :token and state = 'running' /*for update*/
-- name: job_release
update job set state = 'queued', owner = null, not_before = :not_before where job_id = :job_id and owner = :owner and token = :token and state = 'running'
-- name: job_mine
select * from job where owner = :owner and token = :token and state = 'running'
-- name: job_owners
select distinct owner, token from job where state = 'running' and owner is not null
-- name: job_lost
update job set state = case when losses + 1 >= 3 * max_attempts then 'ended' else 'queued' end,
  outcome = case when losses + 1 >= 3 * max_attempts then 'dead' else outcome end,
  error = case when losses + 1 >= 3 * max_attempts then 'its worker died every time it was tried' else error end,
  ended_at = case when losses + 1 >= 3 * max_attempts then :now else ended_at end,
  owner = null, losses = losses + 1 where owner = :owner and token = :token and state = 'running'
-- name: job_left
select * from job where state = 'running' and owner is null
-- name: job_back
update job set state = 'queued' where job_id = :job_id and state = 'running' and owner is null
-- name: job_cancelling
select job_id from job where owner = :owner and state = 'running' and cancel = 1
-- name: job_next
select pool, min(not_before) as at,
  sum(case when (attempts > 0 or job_type = 'promote') and outcome <> 'deferred' and not_before <= :now_ms + 5000 then 1 else 0 end) as retries from job
where state = 'queued' and not_before > :now_ms and not_before < 250000000000000
  and not exists (select 1 from switch where name = job.dataset_id or name = job.job_type)
  and not exists (select 1 from pool where name = job.pool and paused <> '') group by pool
-- name: job_others
select 1 as found from job where state = 'running' and (owner is null or owner <> :owner) and pool <> 'light' limit 1
-- name: job_depth
select pool, state, count(*) as jobs, min(put_ms) as oldest, sum(case when not_before > :now_ms then 1 else 0 end) as later
from job where state in ('queued', 'running') group by pool, state
-- name: job_count
select outcome, count(*) as jobs from job where state = 'ended' group by outcome
-- name: job_forget
delete from job where state = 'ended' and outcome in ('succeeded', 'skipped', 'cancelled') and ended_at < :before
-- name: pool_all
select name, slots, vtime, paused from pool order by name
-- name: pool_lock
select name from pool where name = :name /*for update*/
-- name: pool_used
select count(*) as jobs from job where state = 'running' and pool = :pool
-- name: pool_put
insert into pool (name, slots) values (:name, :slots) on conflict (name) do nothing
-- name: pool_slots
update pool set slots = :slots where name = :name
-- name: pool_pause
update pool set paused = :paused where name = :name
-- name: pool_vtime
update pool set vtime = :vtime where name = :name and vtime < :vtime
-- name: lane_get
select coalesce((select tail from lane where pool = :pool and dataset_id = :dataset_id), 0) as tail,
  coalesce((select vtime from pool where name = :pool), 0) as vtime
-- name: lane_put
insert into lane (pool, dataset_id, tail) values (:pool, :dataset_id, :tail)
on conflict (pool, dataset_id) do update set tail = excluded.tail
-- name: switch_all
select name, reason, by_whom, at from switch order by name
-- name: switch_off
insert into switch (name, reason, by_whom, at) values (:name, :reason, :by_whom, :at)
on conflict (name) do update set reason = excluded.reason, by_whom = excluded.by_whom, at = excluded.at
-- name: switch_on
delete from switch where name = :name
-- name: effect_put
insert into effect (key, job_id, digest, times, at) values (:key, :job_id, :digest, 1, :now)
on conflict (key) do update set times = effect.times + 1
-- name: effect_put_all
insert into effect (key, job_id, digest, times, at) select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), 1, :now
from json_each(:rows) where true on conflict (key) do update set times = effect.times + 1
-- name: effect_get
select key, job_id, digest, times, at from effect where key = :key
-- name: effect_receipts
select key, digest from effect where key >= 'receipts/' and key < 'receipts0' order by key
-- name: effect_loose
select key, digest from effect where key >= :first and key < :before and job_id <> '' order by key
-- name: effect_drop
delete from effect where key = :key
-- name: effect_sum
select count(*) as keys, coalesce(sum(times), 0) as times from effect
-- name: tally_add
insert into tally (job_type, name, value) values (:job_type, :name, :value)
on conflict (job_type, name) do update set value = tally.value + excluded.value
-- name: tally_all
select job_type, name, value from tally order by job_type, name
-- name: promotions_due
select count(*) as due, count(intent) as named from ledger where dataset_id = :dataset_id and state = 'PROPOSED' and promo = 1
-- name: promotions_owed
select distinct dataset_id from ledger where state = 'PROPOSED' and promo = 1 order by dataset_id
