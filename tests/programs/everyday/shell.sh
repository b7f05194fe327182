# What shell scripts do with files; run by bash and by dash, in an empty directory.
set -e
echo one > a; echo two >> a; cat < a
exec 3> fd3; echo three >&3; echo four >&3; exec 3>&-; cat fd3
exec 4<> a; read x <&4; echo "got $x"; echo XXX >&4; exec 4>&-; cat a
cat > here <<END
value $x $(echo sub)
END
cat here
mkdir sub
(cd sub; echo inner > inner; (cd ..; ls fd3); cat inner) | sort > piped; cat piped
{ echo g1; echo g2; } > group
while read line; do echo "line $line"; done < group
seq 1 1000 | tee tee | tail -1
seq 1 5000 | sort -r | head -3 > sorted; cat sorted
f() { echo from function; }
f > function 2>&1
for i in 1 2 3; do echo $i; done >> function; wc -l < function
[ -f a ] && [ ! -e none ] && [ -d sub ] && [ -s a ] && [ -r a ] && [ -w a ] && [ ! -x a ]
[ a -nt none ] && [ a -ef ./a ] && echo compared
echo *; echo [fg]*
cat a none 2>/dev/null || echo "failed as it should"
(set -C; echo x > a) 2>/dev/null || echo "did not overwrite"
: > empty; [ -s empty ] || echo empty
(echo background > bg) & wait; cat bg
trap "echo trapped > trap" USR1; kill -USR1 $$; cat trap
(umask 077; echo s > secret; stat -c %a secret)
mkdir -p x/y/z; cd x/y/z; cd ../..; cd "$OLDPWD"; echo up > ../up; cd ../../..; cat x/y/up
echo 'echo "sourced $x"' > library; . ./library
printf '#!/bin/sh\necho "script $0 $1"\n' > script; chmod +x script
./script a; PATH=.:$PATH script b; env -i ./script c
cp /bin/echo own; ./own program; env -i ./own scrubbed; rm own
cat /dev/stdin < a; cat /proc/self/fd/0 < a; ls -1 < a | tail -1
cd ..; cat "$OLDPWD/a" "./${OLDPWD##*/}/a"; cd "$OLDPWD"
sh -c 'cat /dev/stdin; cat /proc/self/fd/0' < a
