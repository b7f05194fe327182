# A database cluster, made, started, used and stopped by an ordinary user.
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
log=$(mktemp -d)
socket=$PWD
"$bin/initdb" -D data -A trust --no-sync --locale=C -E UTF8 >initdb.log
"$bin/pg_ctl" -D data -l "$log/log" -w -t 120 \
    -o "-k $socket -c listen_addresses= -c port=54329 -c fsync=on" start >/dev/null
trap '"$bin/pg_ctl" -D data -m fast -w -t 120 stop >/dev/null; rm -r "$log"' EXIT
ask() { "$bin/psql" -h "$socket" -p 54329 -d postgres -Atqc "$1"; }
ask 'CREATE TABLE points (id int PRIMARY KEY, text text)'
ask "INSERT INTO points SELECT n, repeat('x', n % 100) FROM generate_series(1, 20000) n"
ask 'CHECKPOINT'
ask 'UPDATE points SET text = text || id WHERE id % 7 = 0'
ask 'SELECT count(*), sum(length(text)) FROM points'
ask 'VACUUM FULL points'
ask 'SELECT md5(string_agg(text, id::text ORDER BY id)) FROM points'
