# Programs that are killed in the middle of their work; run in an empty directory, by bash.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
set -m # Each background job is a process group of its own.
killed() { # Starts a command, and kills it and all it has started after some milliseconds.
    "${@:2}" > /dev/null 2>&1 &
    sleep "0.$(printf %03d "$1")"
    kill -9 -- -$! 2> /dev/null
    wait $! 2> /dev/null
}
commits() {
    local i
    for i in $(seq 1000); do
        echo "$RANDOM" > "f$((i % 50))"; git add . || exit; git commit -qm "$i" || exit
    done
}
git init -q -b main r; cd r || exit 1
echo first > first; git add .; git commit -qm first
for i in 1 2 3 4 5 6; do
    killed $((i * 60 + RANDOM % 60)) commits
    find .git -name '*.lock' -delete
    # An object whose writer was killed is not named yet: every named one is whole.
    git fsck --full --strict 2> /dev/null | grep -v '^dangling' ; git cat-file -p HEAD:first
    git reset -q --hard; git clean -fdq; git status --short
done
git gc -q --prune=now; git fsck --full --strict; git show HEAD:first; cd .. || exit 1
seq 200000 | tac > numbers
for i in 1 2 3; do
    killed $((i * 40 + RANDOM % 40)) sort -S 200k -T . -o sorted numbers
    killed $((i * 20 + RANDOM % 20)) tar cf r.tar r
    killed $((RANDOM % 90)) cp -a r copy
    killed $((i * 30 + RANDOM % 90)) /usr/bin/python3 -c "
import os, tempfile
while True:
    d = tempfile.mkdtemp(dir='.')
    for i in range(20): open(d + '/%d' % i, 'w').write('x' * 5000); os.rename(d + '/%d' % i, d + '/n%d' % i)
    os.unlink(d + '/n0')"
done
cmp <(seq 200000 | tac) numbers && echo whole; sort -n -o sorted numbers; cmp <(seq 200000) sorted && echo sorted
tar cf r.tar r; tar df r.tar && echo "no difference"; rm -rf copy sort?????? r.tar sorted
find . -type f ! -name sums -print0 | LC_ALL=C sort -z | xargs -0 sha256sum > sums
