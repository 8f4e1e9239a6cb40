create table proposal (number integer primary key, run_id text not null unique);
