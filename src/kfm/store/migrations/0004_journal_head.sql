create table journal_head (wal_id text primary key, count integer not null, hash text not null) without rowid;
insert into journal_head
  select wal_id, count(*), (select hash from journal last where last.wal_id = journal.wal_id order by seq desc limit 1) from journal group by wal_id;
