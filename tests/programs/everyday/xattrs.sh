# Extended attributes, as tools set, show and copy them; run in an empty directory.
exec 2>&1
show() {
    find "$@" | LC_ALL=C sort | xargs getfattr -d 2>&1
}

echo one > f; mkdir d; echo two > d/g
setfattr -n user.colour -v blue f; setfattr -n user.empty f; setfattr -n user.bytes -v 0x00ff0a f
setfattr -n user.of.directory -v yes d; setfattr -n user.long -v $(printf %02000d 7) d/g
show f d; getfattr --only-values -n user.colour f; echo; getfattr -e hex -d f
setfattr -x user.empty f; setfattr -n user.colour -v red f; show f
getfattr -n user.none f; setfattr -x user.none f; setfattr -n user.a -v b missing
setfattr -n wrong -v b f; getfattr -d missing; getfattr -h -d f

cp f plain; cp -p f kept; cp -a d copied; cp --preserve=xattr f told; cp -a f told; show plain kept copied told
mv f moved; mv d/g d/h; ln moved linked 2> /dev/null && rm linked; show moved d
out=$(mktemp -d); cp -a moved d $out; mv kept $out; (cd $out; show moved d kept)
cp -a $out/d back; mv $out/kept .; show back kept; rm -rf $out
tar --xattrs -cf t.tar moved d; mkdir untarred; tar --xattrs -xf t.tar -C untarred; show untarred; rm t.tar
rsync -aX d/ synced; show synced; setfattr -n user.new -v 1 d/h; rsync -aX d/ synced; show synced
ls -l moved | wc -l; ls -ld d | cut -c1-10; getfacl -p moved > /dev/null 2>&1; echo $?
rm moved; echo new > moved; show moved

/usr/bin/python3 - <<'END'
import os

def told(call, *arguments, **named):
    try:
        print(call.__name__, arguments[1:], call(*arguments, **named))
    except OSError as e:
        print(call.__name__, arguments[1:], e.strerror)

f = open('p', 'w+')
for target in 'p', f.fileno(), 'd', os.open('d', os.O_RDONLY):
    told(os.setxattr, target, 'user.a', b'1')
    told(os.setxattr, target, 'user.a', b'2', os.XATTR_CREATE)
    told(os.setxattr, target, 'user.b', b'2', os.XATTR_REPLACE)
    told(os.setxattr, target, 'user.b', b'3' * 3000, os.XATTR_CREATE)
    told(os.setxattr, target, 'user.a', b'', os.XATTR_REPLACE)
    told(os.setxattr, target, 'user.a', b'', os.XATTR_REPLACE | os.XATTR_CREATE)
    told(os.setxattr, target, 'user.c', b'', os.XATTR_REPLACE | os.XATTR_CREATE)
    told(os.setxattr, target, 'user.c', b'', 8)
    told(os.setxattr, target, 'user.' + 'x' * 251, b'')
    told(os.setxattr, target, '', b'')
    told(os.setxattr, target, 'user.c', b'x' * 70000)
    told(os.getxattr, target, 'user.a')
    told(os.getxattr, target, 'user.c')
    told(os.removexattr, target, 'user.c')
    print(sorted(os.listxattr(target)))
    told(os.removexattr, target, 'user.b')
    told(os.removexattr, target, 'user.a')
told(os.getxattr, 'p/', 'user.a')
told(os.getxattr, 'p/q', 'user.a')
told(os.setxattr, os.open('p', os.O_RDONLY), 'user.by', b'a reader')
told(os.listxattr, os.open('p', os.O_PATH))
told(os.listxattr, 'p', follow_symlinks=False)
END
