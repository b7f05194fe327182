# Databases of SQLite that several processes write; run in an empty directory.
sql() {
    sqlite3 -batch -cmd '.timeout 60000' "$@"
}

for mode in delete truncate persist memory; do
    sql $mode "pragma journal_mode=$mode; create table t(who, n);"
    for who in 1 2 3; do
        (for n in 1 2 3 4 5 6 7 8; do
            sql $mode "pragma journal_mode=$mode; begin immediate; insert into t values($who, $n);
                update t set n = n + 1 where who = $who; commit;" > /dev/null
        done) &
    done
    wait
    sql $mode "select who, count(*), sum(n) from t group by who; pragma integrity_check;"
done

# One that has to wait, and one that does not want to.
sql db "create table t(n); insert into t values(1);"
(echo "begin exclusive; insert into t values(2);"
    echo ".shell touch has; until test -e tried; do sleep 0.1; done"; echo "commit;") | sql db &
until test -e has; do sleep 0.01; done
sqlite3 -batch db "select count(*) from t" 2>&1 | grep -o 'database is locked'
touch tried
sql db "select count(*) from t"
wait

# A writer that is killed: the next one rolls back.
sql db "create table big(x);"
(echo "pragma cache_size=1; begin; with recursive c(i) as (select 1 union all select i + 1 from c
    where i < 20000) insert into big select hex(randomblob(50)) from c;"
    echo '.shell echo $PPID $$ > pids; mv pids writes; exec sleep 30') | sqlite3 -batch db &
until test -e writes; do sleep 0.01; done
kill -9 $(cat writes); wait
sql db "select count(*) from big; pragma integrity_check; insert into big values(1);"
sql db "select count(*) from big; pragma locking_mode=exclusive; pragma journal_mode=wal;
    insert into big values(2); select count(*) from big; pragma journal_mode=delete;"
sql db "vacuum; pragma integrity_check;"; sql db .dump | wc -l
ls; rm -f has tried writes
