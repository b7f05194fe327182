# What an ordinary user may do, and what he is told where he may not. Run in a directory with files
# of somebody else (`theirs`, ...), as tests/ordinary_user.rs makes them; says all it meets.
exec 2>&1
LC_ALL=C
export LC_ALL
umask 022

try() {
    echo "> $*"
    "$@"
    echo "= $?"
}

# Eight bytes to a file, without creating it.
into() {
    dd if=/dev/zero of="$1" bs=8 count=1 conv=notrunc,nocreat oflag=append status=none
}

echo "somebody else's files"
try cat theirs/readable
try cat theirs/secret
try cat theirs/writable
try into theirs/readable
try into theirs/writable
try cat theirs/closed/inside
try ls theirs/closed
try ls theirs/passage
try cat theirs/passage/inside
try stat -c %s theirs/closed/inside
try ls theirs/listed
try stat -c %s theirs/listed/inside
for file in theirs/readable theirs/writable; do
    try chmod 640 $file
    try chown "$(id -u)" $file
    try chgrp "$(id -g)" $file
    try touch -d 2001-01-01 $file
    try touch -c $file
    try truncate -s 3 $file
    try rm -f $file
    try mv $file theirs/other
    try mv $file taken
    try sh -c "test -r $file; echo \$?; test -w $file; echo \$?; test -x $file; echo \$?"
done
try touch theirs/new
try mkdir theirs/new
try ln -s x theirs/new
try rmdir theirs/empty
try sh -c 'cd theirs/closed'
try sh -c 'cd theirs/listed'
try sh -c 'cd theirs/passage && pwd | sed "s|.*/||" && cat inside'
try sh -c 'find theirs -name inside 2>&1 | sort'
try theirs/program
try theirs/no-program
try sh theirs/no-program

echo "a directory for all, with the sticky bit"
try touch sticky/mine
try rm -f sticky/theirs
try mv sticky/theirs sticky/other
try mv sticky/mine sticky/theirs
try mv sticky/mine sticky/moved
try rmdir sticky/empty
try rm sticky/moved
echo "one without"
try rm -f open/theirs
try mv open/second open/other
try rmdir open/empty

echo "what is one's own"
mkdir own
echo bytes >own/file
try chmod 000 own/file
try cat own/file
try into own/file
try chmod 200 own/file
try cat own/file
try into own/file
try chmod 400 own/file
try into own/file
try truncate -s 2 own/file
try chmod 640 own/file
try chgrp 0 own/file
try chown 0 own/file
try chown "$(id -u)":"$(id -g)" own/file
try cp own/file own/copy
for mode in 0 100 200 300 400 500 600; do
    try chmod $mode own
    try ls own
    try cat own/file
    try stat -c %a own/file
    try touch own/new
    try rm -f own/copy
    try sh -c 'cd own && ls file'
    chmod 700 own
    cp own/file own/copy
    rm -f own/new
done
try mkdir -m 700 own/deep own/deep/er
echo x >own/deep/er/file
chmod 0 own/deep
try cat own/deep/er/file
try ls own/deep/er
try mv own/deep/er/file own/other
try mv own/deep own/shallow
try sh -c 'echo y >own/shallow/new'
try rm -rf own/shallow
chmod 700 own/shallow
try rm -rf own/shallow
try chmod 4755 own/file
try stat -c %a own/file
try chmod 2755 own
try mkdir own/below
try stat -c %a own/below
try umask 077
touch own/private
try stat -c %a own/private
printf '#! /bin/sh\necho ran\n' >own/script
try own/script
chmod 700 own/script
try own/script
chmod 100 own/script
try cat own/script
chmod 700 own/script

echo "what is closed before its files have arrived"
mkdir shut
for file in 1 2 3; do
    echo $file >shut/$file
done
mkdir shut/within
echo deep >shut/within/file
ln shut/within/file shut/within/link
chmod 400 shut/1
chmod 0 shut/within
chmod 500 shut
try cat shut/1 shut/2
try rm -f shut/2
