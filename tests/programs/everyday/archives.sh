# tar and cpio; run in an empty directory.
mkdir -p t/a/b t/e; for i in $(seq 200); do echo "content $i" > t/a/f$i; done
seq 1 20000 > t/a/b/big; chmod 600 t/a/f1; touch -d '2010-01-01 00:00:00' t/a/f2
tar cf t.tar t; tar tf t.tar | wc -l; mkdir x; tar xf t.tar -C x; diff -r t x/t && echo same
stat -c '%a' x/t/a/f1; stat -c %y x/t/a/f2
tar czf t.tgz t; tar xzf t.tgz -C x --overwrite; tar c t | tar x -C x
tar rf t.tar t/e; tar uf t.tar t; tar --delete -f t.tar t/a/f1; tar tf t.tar | grep -c f1$
tar df t.tar && echo "no difference"; tar cSf s.tar t/a/b; tar xpf t.tar --strip-components=1 -C x
rm t.tgz t.tar s.tar; ls x
if command -v cpio > /dev/null; then
    find t | cpio -o > t.cpio 2> /dev/null; mkdir y
    (cd y; cpio -id < ../t.cpio 2> /dev/null); diff -r t y/t && echo same; rm t.cpio
fi
