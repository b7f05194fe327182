# Locks as scripts and interpreters take them; run in an empty directory.
flock lock echo locked
(flock 9; echo held; flock -n lock echo stolen || echo refused) 9> lock
(flock -s 9; flock -sn lock echo shared; flock -xn lock echo stolen || echo refused) 9> lock
(flock 9; : > taken; sleep 0.3; echo first) 9> lock & until [ -e taken ]; do sleep 0.02; done
flock lock echo second; wait; rm taken
(flock 9; flock -w 0.2 lock echo stolen; echo "late $?") 9> lock
mkdir d; flock d echo directory; flock -n d flock -n d echo stolen || echo refused
flock -o lock sleep 30 & holder=$!; while flock -n lock true; do sleep 0.02; done; echo refused
pkill -9 -P $holder; wait $holder; flock -w 10 lock echo free
exec 8> lock; flock 8; (flock -n lock echo stolen || echo refused); sleep 2 8>&8 &
exec 8>&-; flock -n lock echo stolen || echo "a child has it"; wait; flock -n lock echo free

perl -MFcntl=:flock -e 'open F, ">p"; flock F, LOCK_EX or print "$!\n"; print "locked\n";
    open G, ">p"; flock G, LOCK_SH | LOCK_NB or print "$!\n"; close F; flock G, LOCK_SH or print "$!\n"'
/usr/bin/python3 - <<'END'
import fcntl, os, signal

f = open('l', 'w')
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
if os.fork() == 0:
    g = open('l', 'r+')
    for start in (0, 5):
        try:
            fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, start)
            print('taken', start, flush=True)
        except OSError as e:
            print(e, start, flush=True)
    try:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
    except BlockingIOError as e:
        print('a child has no locks of its parent:', e, flush=True)
    os._exit(0)
os.wait()

class Late(Exception):
    pass

def late(*_):
    raise Late

signal.signal(signal.SIGALRM, late)
g = open('l', 'w')
fcntl.flock(f, fcntl.LOCK_EX)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    fcntl.flock(g, fcntl.LOCK_EX)
except Late:
    print('late')
print(open('l').read())
END

# Many at once: no number is lost.
echo 0 > count
for worker in 1 2 3 4; do
    for round in 1 2 3 4 5 6 7 8; do
        flock lock sh -c 'read n < count; echo $((n + 1)) > count'
    done &
done
wait; cat count

# Git's own locks are files.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main r && cd r && echo a > a && git add a && git commit -qm one
touch .git/index.lock; git add a > /dev/null 2>&1 || echo "index is locked"; rm .git/index.lock
for i in 1 2 3; do git gc -q > ../gc.$i 2>&1 & done
# A commit that meets a gc's lock of the references is refused, on tmpfs, too.
for i in 1 2 3 4 5; do
    echo $i > a; tries=0
    until git commit -qam $i 2> ../refused || [ $tries = 100 ]; do tries=$((tries + 1)); sleep 0.05; done
done
wait; git gc -q; git fsck --full 2>&1; git log --oneline | wc -l; cd ..; rm -rf r gc.* refused
