#!/usr/bin/env bash
# The main job, shown: LAMMPS computes inside Terral, its files arrive in a permanent directory; then
# program, server and launcher are killed together and `terral recover` brings what was in memory.
set -euo pipefail
cd "$(dirname "$0")/.."
terral=$PWD/target/release/terral
input=$PWD/demo/in.melt
home=$(mktemp -d "${TMPDIR:-/tmp}/terral-demo.XXXXXX")
trap 'rm -rf "$home"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

if ! command -v lmp >/dev/null; then
    echo "demo: LAMMPS is missing: apt-get install lammps (make deps does it as root)" >&2
    exit 1
fi

say "1. The same job, plain, for comparison"
mkdir "$home/plain"
cp "$input" "$home/plain/"
(cd "$home/plain" && time lmp -in in.melt >/dev/null)

say "2. terral run --to DIR -- lmp: its files are in memory, and arrive in DIR meanwhile"
"$terral" run --to "$home/out" -- sh -c \
    "cp '$input' \$TERRAL_DIR/ && cd \$TERRAL_DIR && lmp -in in.melt >/dev/null"

say "3. What arrived is what the plain run wrote"
for file in "$home"/plain/*; do
    name=$(basename "$file")
    [ "$name" = log.lammps ] && continue # it holds timings
    cmp "$file" "$home/out/$name"
    echo "  same  $name"
done

say "4. Program, server and launcher are killed in the middle of a run"
"$terral" run --to "$home/killed" -- sh -c \
    "cp '$input' \$TERRAL_DIR/ && cd \$TERRAL_DIR && lmp -in in.melt >/dev/null" 2>/dev/null &
launcher=$!
disown "$launcher" # so that the shell does not announce its end
instance=
for _ in $(seq 200); do
    instance=$(find "/dev/shm/terral-$(id -u)" -maxdepth 1 -name "run-$launcher-*" 2>/dev/null || true)
    if [ -n "$instance" ] && "$terral" stat --instance "$instance" restart.100 >/dev/null 2>&1; then
        break
    fi
    sleep 0.05
done
descendants() {
    local pid
    echo "$1"
    for pid in $(cat /proc/"$1"/task/*/children 2>/dev/null); do descendants "$pid"; done
}
# shellcheck disable=SC2046
kill -9 $(descendants "$launcher")
while kill -0 "$launcher" 2>/dev/null; do sleep 0.05; done
echo "  in DIR now: $(find "$home/killed" -type f | wc -l) files"

say "5. terral recover"
"$terral" recover "$(basename "$instance")"
cmp "$home/plain/restart.100" "$home/killed/restart.100"
echo "  same  restart.100: LAMMPS can go on from it"
